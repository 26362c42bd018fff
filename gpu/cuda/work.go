//go:build cuda

package cuda

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"longship/gpu/cuda/shim"
)

// function is a kernel of the embedded PTX.
type function struct {
	name   string
	handle cu.Function
	shared int // dynamic shared memory it may have; of the device's thread alone
}

// staticShared is the dynamic shared memory that needs no permission.
const staticShared = 48 << 10

// launch is one call of a kernel.
type launch struct {
	fn          *function
	grid, block dim
	shared      int
	args        []arg
}

// kernel queues a call of a function of the PTX.
func (s *stream) kernel(symbol string, grid, block dim, shared int, args ...arg) error {
	fn, ok := s.dev.functions[symbol]
	if !ok {
		return fmt.Errorf("there is no kernel %s for this card (%s)", symbol, s.dev.info.Libraries["compute"])
	}
	l := &launch{fn: fn, grid: grid.atLeastOne(), block: block.atLeastOne(), shared: shared, args: args}
	s.launches.Add(1)
	s.push(l)
	return nil
}

func (d dim) atLeastOne() dim { return dim{max(d[0], 1), max(d[1], 1), max(d[2], 1)} }

func (l *launch) issue(s *stream) {
	if s.failed() != nil {
		return
	}
	if err := l.call(s); err != nil {
		s.Fail(fmt.Errorf("launch %s, grid %v, block %v, %d bytes of shared memory: %w", l.fn.name, l.grid, l.block, l.shared, explain(err)))
		return
	}
	s.dev.ran(s, l.fn.name)
}

func (l *launch) call(s *stream) error {
	if l.shared > max(l.fn.shared, staticShared) {
		// The function's handle is the one field of cu.Function.
		handle := *(*unsafe.Pointer)(unsafe.Pointer(&l.fn.handle))
		if err := shim.AllowShared(handle, l.shared); err != nil {
			return err
		}
		l.fn.shared = l.shared
	}
	params := make([]unsafe.Pointer, len(l.args))
	for i := range l.args {
		params[i] = unsafe.Pointer(&l.args[i])
	}
	return l.fn.handle.Launch(l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2], l.shared, s.handle, params)
}

// transfer is one copy between places that the driver knows.
type transfer struct {
	dst, src uintptr
	bytes    int64
}

func (c *transfer) issue(s *stream) {
	if s.failed() != nil {
		return
	}
	if err := cu.MemcpyAsync(cu.DevicePtr(c.dst), cu.DevicePtr(c.src), c.bytes, s.handle); err != nil {
		s.Fail(fmt.Errorf("copy %d bytes: %w", c.bytes, explain(err)))
		return
	}
	s.dev.ran(s, "copy")
}

// hostFunc is a function run on the host between the work before and behind
// it. The stream is parked meanwhile: what failed must not be computed from.
type hostFunc struct{ fn func() error }

func (h *hostFunc) issue(s *stream) {
	if s.failed() != nil {
		return
	}
	s.parked = true
	e := newEvent(s)
	(*recording)(e).issue(s)
	go func() {
		if err := e.wait(); err == nil {
			if err := h.fn(); err != nil {
				s.Fail(fmt.Errorf("host function: %w", err))
			}
		}
		t := s.dev.thread
		t.push(entry{w: resumption{s}})
		t.flush()
	}()
}

// resumption ends the parking of a stream.
type resumption struct{ s *stream }

func (r resumption) issue(*stream) { r.s.resume() }
