//go:build cuda

package cuda

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"longship/gpu"
	"longship/gpu/cuda/shim"
)

// buffer is a gpu.Buffer: memory of the card, or page-locked memory of the host.
type buffer struct {
	dev     *Device
	size    int64
	at      uintptr // address, the same for the card and, in host memory, the host
	host    []byte  // nil on the card
	release func() error
	freed   bool // under dev.mu
}

func (b *buffer) Size() int64  { return b.size }
func (b *buffer) Host() []byte { return b.host }

// Free gives the memory back to the driver. No work that names it may be queued.
func (b *buffer) Free() error {
	b.dev.mu.Lock()
	freed := b.freed || b.dev.closed
	b.freed = true
	delete(b.dev.buffers, b)
	b.dev.mu.Unlock()
	if freed {
		return nil
	}
	err := b.dev.thread.call(b.release)
	if err != nil && b.dev.failed() == nil {
		return fmt.Errorf("free %d bytes: %w", b.size, explain(err))
	}
	return nil
}

// Alloc takes memory of the card. Its content is undefined.
func (d *Device) Alloc(bytes int64) (gpu.Buffer, error) {
	b := &buffer{dev: d, size: bytes}
	err := d.thread.call(func() error {
		at, err := cu.MemAlloc(max(bytes, 1))
		if err != nil {
			free, total, _ := cu.MemInfo()
			return fmt.Errorf("take %d bytes of the card, %d of %d are free: %w", bytes, free, total, explain(err))
		}
		b.at = uintptr(at)
		b.release = func() error { return cu.MemFree(at) }
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.track(b)
	return b, nil
}

// AllocHost takes page-locked memory. Its content is undefined. A large piece
// is ordinary memory on huge pages, touched by all cores and then registered:
// several times as fast as the driver's own allocation.
func (d *Device) AllocHost(bytes int64) (gpu.Buffer, error) {
	b := &buffer{dev: d, size: bytes}
	var err error
	if bytes >= registerFrom {
		err = d.register(b)
	} else {
		err = d.thread.call(func() error { return hostAlloc(b) })
	}
	if err != nil {
		return nil, fmt.Errorf("take %d bytes of page-locked memory: %w", bytes, explain(err))
	}
	d.track(b)
	return b, nil
}

func hostAlloc(b *buffer) error {
	p, err := shim.HostAlloc(max(b.size, 1))
	if err != nil {
		return err
	}
	b.at = uintptr(p)
	b.host = unsafe.Slice((*byte)(p), b.size)
	b.release = func() error { b.host = nil; return shim.HostFree(p) }
	return nil
}

func (d *Device) track(b *buffer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buffers[b] = struct{}{}
}

// address returns where a buffer of this device starts.
func (d *Device) address(buf gpu.Buffer) (uintptr, error) {
	b, ok := buf.(*buffer)
	if !ok || b.dev != d {
		return 0, fmt.Errorf("a %T of another device is neither memory of this card nor page-locked", buf)
	}
	return b.at, nil
}

// place returns where a region starts.
func (d *Device) place(r gpu.Region) (uintptr, error) {
	at, err := d.address(r.Buf)
	if err != nil {
		return 0, err
	}
	if r.Off < 0 || r.Len < 0 || r.Off+r.Len > r.Buf.Size() {
		return 0, fmt.Errorf("bytes [%d,%d) of a buffer of %d", r.Off, r.Off+r.Len, r.Buf.Size())
	}
	return at + uintptr(r.Off), nil
}

const (
	// multiplyBytes is cublasLt's workspace, what it is tuned for on these cards.
	multiplyBytes = 32 << 20
	// scratchBytes is what kernels of a stream may have for partial results.
	scratchBytes = 32 << 20
)

// workspace is the address of memory for cublasLt and, behind it, for kernels.
// Zero is none.
type workspace uintptr

// addWorkspace takes one more workspace. It runs on the thread.
func (d *Device) addWorkspace() error {
	at, err := cu.MemAlloc(multiplyBytes + scratchBytes)
	if err != nil {
		return fmt.Errorf("take %d bytes of workspace: %w", multiplyBytes+scratchBytes, explain(err))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spare = append(d.spare, workspace(at))
	return nil
}

// space returns the stream's workspace. The first stream that needs one has the
// one that Open took; more streams at the same time take more memory, once.
func (s *stream) space() (workspace, error) {
	if s.scratchSpace != 0 {
		return s.scratchSpace, nil
	}
	d := s.dev
	for {
		d.mu.Lock()
		if n := len(d.spare); n > 0 {
			s.scratchSpace = d.spare[n-1]
			d.spare = d.spare[:n-1]
			d.mu.Unlock()
			return s.scratchSpace, nil
		}
		d.mu.Unlock()
		if err := d.thread.call(d.addWorkspace); err != nil {
			return 0, err
		}
	}
}

// giveWorkspace makes a workspace another stream's.
func (d *Device) giveWorkspace(w workspace) {
	if w == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spare = append(d.spare, w)
}

// scratch returns memory of the stream for partial results, 256-byte aligned.
// It is the same memory at every call: what one op left there is the next one's.
func (s *stream) scratch(bytes int64) (arg, error) {
	if bytes > scratchBytes {
		return 0, fmt.Errorf("%d bytes of scratch, a stream has %d", bytes, scratchBytes)
	}
	w, err := s.space()
	if err != nil {
		return 0, err
	}
	return arg(w) + multiplyBytes, nil
}
