package folderlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Writable says why a folder cannot be taken, as far as that can be seen without
// writing: it, or the nearest above it that is there, must be a folder that this
// user may write to.
func Writable(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
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
