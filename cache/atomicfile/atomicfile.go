// Package atomicfile writes files that are there whole or not at all: under
// another name, synced, renamed, and the folder synced. A process, or the power,
// may go at any moment between; what is then left under the other name is
// overwritten the next time.
//
// The functions may be called from any goroutine, for one path from one at a time.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Partial stands behind the name of a file that is being written.
const Partial = ".partial"

// Write writes the file at path with what write writes into f, which is empty
// and may be read and written anywhere. Where it fails the file that was there
// before stays and nothing is left of the new one; the error wraps write's own.
func Write(path string, write func(f *os.File) error) (err error) {
	f, err := os.OpenFile(path+Partial, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, discard(f))
		}
	}()
	if err := write(f); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// WriteBytes writes the file at path with data; see Write.
func WriteBytes(path string, data []byte) error {
	return Write(path, func(f *os.File) error {
		_, err := f.Write(data)
		return err
	})
}

// discard removes what was begun, unless it has been renamed.
func discard(f *os.File) error {
	f.Close()
	if err := os.Remove(f.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
