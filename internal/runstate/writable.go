package runstate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Writable says why the run's files cannot be written, as far as that can be
// seen without writing: the folder, or the nearest above it that is there, must
// be a folder that this user may write to.
func (f Folder) Writable() error {
	for at := f.Dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at:
			continue
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is a file, a folder is needed", at)
		}
		return mayWrite(at)
	}
}
