//go:build cuda

package cuda

import (
	"runtime"
	"sync"
	"unsafe"

	"github.com/edsrzf/mmap-go"

	"longship/gpu/cuda/shim"
)

// registerFrom is the size from which page-locked memory is mapped and
// registered by ourselves.
const registerFrom = 64 << 20

// register gives b anonymous memory that the driver has page-locked.
func (d *Device) register(b *buffer) error {
	mem, err := mmap.MapRegion(nil, int(b.size), mmap.RDWR, mmap.ANON, 0)
	if err != nil {
		return err
	}
	preferHugePages(mem)
	touch(mem)
	if err := d.thread.call(func() error { return shim.HostRegister(mem) }); err != nil {
		_ = mem.Unmap() // the driver's error is the one to tell
		return err
	}
	b.host, b.at = mem, uintptr(unsafe.Pointer(&mem[0]))
	b.release = func() error {
		b.host = nil
		if err := shim.HostUnregister(mem); err != nil {
			return err
		}
		return mem.Unmap()
	}
	return nil
}

// touch has the system give every page, on all cores: it clears them, which is
// what takes the time.
func touch(mem []byte) {
	const page = 4096
	n := runtime.GOMAXPROCS(0)
	part := (len(mem)/n + page) / page * page
	var wg sync.WaitGroup
	for lo := 0; lo < len(mem); lo += part {
		piece := mem[lo:min(lo+part, len(mem))]
		wg.Go(func() {
			for i := 0; i < len(piece); i += page {
				piece[i] = 0
			}
		})
	}
	wg.Wait()
}
