package cpu

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/edsrzf/mmap-go"

	"longship/gpu"
)

const alignment = 64 // a cache line, and the widest vector register

// buffer is a gpu.Buffer in host memory.
type buffer struct {
	dev  *Device
	mem  []byte
	free func() error
	once sync.Once
	err  error
}

func (b *buffer) Size() int64  { return int64(len(b.mem)) }
func (b *buffer) Host() []byte { return b.mem }

// Free gives the memory back: a large buffer's at once to the system, a small
// one's to the garbage collector.
func (b *buffer) Free() error {
	b.once.Do(func() {
		b.dev.count(-1, -b.Size())
		b.mem = nil
		b.err = b.free()
	})
	return b.err
}

// allocate returns n aligned bytes and how to give them back. Large ones are
// anonymous mappings, so that freeing a model really frees memory.
func allocate(n int64) ([]byte, func() error, error) {
	if n < 0 || int64(int(n)) != n {
		return nil, nil, fmt.Errorf("allocate %d bytes: %w", n, gpu.ErrOutOfMemory)
	}
	if n >= mapFrom {
		m, err := mmap.MapRegion(nil, int(n), mmap.RDWR, mmap.ANON, 0)
		if err != nil {
			return nil, nil, fmt.Errorf("allocate %d bytes: %w (%v)", n, gpu.ErrOutOfMemory, err)
		}
		return m, m.Unmap, nil
	}
	raw := make([]byte, n+alignment)
	skip := int(-uintptr(unsafe.Pointer(&raw[0])) % alignment)
	return raw[skip : skip+int(n) : skip+int(n)], func() error { return nil }, nil
}
