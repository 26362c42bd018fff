//go:build unix

package cli

import (
	"errors"
	"syscall"
)

// readerGone says whether a write failed since nobody reads.
func readerGone(err error) bool { return errors.Is(err, syscall.EPIPE) }
