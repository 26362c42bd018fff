package cache

import (
	"fmt"
	"sync"

	"github.com/shirou/gopsutil/v4/disk"
)

const (
	// reserveBytes is what Badger may still need on top of the values: the rest
	// of its write-ahead log, and the table that the log becomes.
	reserveBytes = 4 * memTableSize
	// openBytes is what opening needs, so that gc can still run on a disk that
	// has less than reserveBytes.
	openBytes = 2 << 20
)

// roomKeeper sees to it that values are only handed to Badger while the disk
// has room for them. Badger writes through memory maps, and a page that the
// disk cannot back ends the process with a bus error instead of a message.
type roomKeeper struct {
	mu      sync.Mutex
	pending int64 // bytes reserved by writes in flight
}

// forOpening says whether the disk has room enough to open a folder.
func (r *roomKeeper) forOpening(dir string) error {
	use, err := disk.Usage(dir)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if use.Free < openBytes {
		return fmt.Errorf("%w: %d bytes are free, opening needs %d; free some space, or move the cache", ErrFull, use.Free, openBytes)
	}
	return nil
}

// reserve takes n bytes of the disk's room until release is called.
func (r *roomKeeper) reserve(dir string, n int64) (release func(), err error) {
	use, err := disk.Usage(dir)
	if err != nil {
		return nil, fmt.Errorf("free space of %s: %w", dir, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if free := int64(use.Free) - r.pending - reserveBytes; n > free {
		return nil, fmt.Errorf("%w: %d bytes do not fit, %d are free and %d of them are kept for the index; free some space, or move the cache",
			ErrFull, n, use.Free, reserveBytes)
	}
	r.pending += n
	return func() {
		r.mu.Lock()
		r.pending -= n
		r.mu.Unlock()
	}, nil
}
