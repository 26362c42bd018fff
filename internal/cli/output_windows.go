package cli

import (
	"errors"

	"golang.org/x/sys/windows"
)

// readerGone says whether a write failed since nobody reads.
func readerGone(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
