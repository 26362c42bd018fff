//go:build unix

package atomicfile

import (
	"errors"
	"os"
	"syscall"
)

// SyncDir brings a folder's entries to the disk: a rename or removal in it
// outlives a power cut when it returns. Some network file systems cannot sync a
// folder, and keep entries safe themselves.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}
