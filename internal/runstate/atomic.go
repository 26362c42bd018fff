package runstate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// commit writes a file so that it is there whole or not at all: under another
// name, synced, renamed, and the folder synced. On an error nothing is left.
func commit(path string, write func(f *os.File) error) (err error) {
	partial := path + partialExt
	f, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, discard(f, partial))
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
	if err := os.Rename(partial, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// discard removes what was begun.
func discard(f *os.File, path string) error {
	f.Close()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
