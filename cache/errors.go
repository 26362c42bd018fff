package cache

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrNotFound: there is no such entry. The caller makes the value and puts it.
	ErrNotFound = errors.New("not in the cache")
	// ErrCorrupt: the entry's bytes are not those that were put. It has been
	// dropped, so the value can be made and put again.
	ErrCorrupt = errors.New("damaged in the cache")
	// ErrOpen: this process has the folder open already. Use Shared.
	ErrOpen = errors.New("cache is already open in this process")
	// ErrNewer: the folder was written by a newer version of the program. It is
	// left as it is; use another folder or the newer version.
	ErrNewer = errors.New("cache has a newer format")
	// ErrFull: the disk has no room for the value. Nothing was written.
	ErrFull = errors.New("disk is full")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("cache is closed")
)

// Holder says who has a cache folder open.
type Holder struct {
	PID     int       `json:"pid"`
	Run     string    `json:"run"`
	Started time.Time `json:"started"`
}

// BusyError is returned by Open when another process has the folder. The
// caller waits (Options.Wait), ends the other, or uses another folder.
type BusyError struct {
	Dir    string
	Holder Holder // zero PID where the holder could not be read
}

func (e *BusyError) Error() string {
	if e.Holder.PID == 0 {
		return fmt.Sprintf("cache %s is in use by another process; wait for it with --wait or use another folder", e.Dir)
	}
	return fmt.Sprintf("cache %s is in use by process %d (run %q, started %s); wait for it with --wait or use another folder",
		e.Dir, e.Holder.PID, e.Holder.Run, e.Holder.Started.Format(time.DateTime))
}
