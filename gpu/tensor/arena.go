package tensor

import (
	"fmt"

	"longship/gpu"
)

// Align is the alignment in bytes of everything that an Arena or a unit holds.
const Align = 256

// Arena hands out tensors from one buffer, as a stack: Mark, take, Release.
// Nothing is allocated in a step, and the same code takes the same offsets
// every time. Releasing needs no synchronisation while all users of the
// memory are queued on one stream.
//
// An Arena without a buffer measures: it hands out tensors that have no
// memory, and Peak says what a real one needs. A dry run of the model on a
// stream that discards its work is therefore the memory plan.
type Arena struct {
	buf  gpu.Buffer
	cap  int64
	off  int64
	peak int64
	fail func(error)
}

// NewArena returns an arena over buf; fail is told when it runs over (a stream's Fail).
func NewArena(buf gpu.Buffer, fail func(error)) *Arena {
	return &Arena{buf: buf, cap: buf.Size(), fail: fail}
}

// MeasuringArena returns an arena without memory.
func MeasuringArena() *Arena { return &Arena{cap: 1 << 62, fail: func(error) {}} }

// New takes a contiguous tensor. Its content is undefined. When the arena is
// full the arena's fail is told and the tensor returned overlaps others: the
// stream drops all further work, so nobody reads it.
func (a *Arena) New(dt DType, shape ...int) Tensor {
	t := New(a.buf, a.off, dt, append([]int(nil), shape...)...)
	next := (a.off + t.Bytes() + Align - 1) / Align * Align
	if next > a.cap {
		a.fail(fmt.Errorf("workspace: %s %v needs %d bytes more than the %d planned: %w", dt, shape, next-a.cap, a.cap, gpu.ErrOutOfMemory))
		return t
	}
	a.off = next
	a.peak = max(a.peak, next)
	return t
}

// Mark returns the present position for Release.
func (a *Arena) Mark() int64 { return a.off }

// Release frees everything taken since the mark.
func (a *Arena) Release(mark int64) { a.off = mark }

// Peak returns the most bytes that were ever taken at once.
func (a *Arena) Peak() int64 { return a.peak }
