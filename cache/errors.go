package cache

import (
	"errors"

	"longship/cache/folderlock"
)

var (
	// ErrNotFound: there is no such entry. The caller makes the value and puts it.
	ErrNotFound = errors.New("not in the cache")
	// ErrCorrupt: the entry's bytes are not those that were put. It has been
	// dropped, so the value can be made and put again.
	ErrCorrupt = errors.New("damaged in the cache")
	// ErrOpen: this process has the folder open already. Use Shared.
	ErrOpen = folderlock.ErrHeldHere
	// ErrNewer: the folder was written by a newer version of the program. It is
	// left as it is; use another folder or the newer version.
	ErrNewer = errors.New("cache has a newer format")
	// ErrFull: the disk has no room for the value. Nothing was written.
	ErrFull = errors.New("disk is full")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("cache is closed")
)

// BusyError is returned by Open when another process has the folder. The
// caller waits (Options.Wait), ends the other, or uses another folder.
type BusyError = folderlock.BusyError
