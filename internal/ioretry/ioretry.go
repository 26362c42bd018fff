// Package ioretry repeats reads that failed for a reason that may pass, as on a
// network disk. A fault of the file itself (it is missing, it is broken) is
// never tried again.
package ioretry

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// pauses are the waits before the second, third and fourth try.
var pauses = []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, 2 * time.Second}

// Do calls fn until it succeeds, fails for good, or has failed four times. It
// returns fn's last error, or ctx's where that ended a wait.
func Do(ctx context.Context, fn func() error) error {
	for _, pause := range pauses {
		err := fn()
		if err == nil || !passing(err) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fn()
}

// passing says whether an error may go away by itself.
func passing(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	var errno syscall.Errno
	return errors.As(err, &errno) && (errno.Temporary() || errno.Timeout() || errno == syscall.EIO)
}
