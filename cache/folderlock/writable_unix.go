//go:build unix

package folderlock

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// mayWrite asks the system whether files can be made in a folder.
func mayWrite(dir string) error {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("cannot write to %s: %w", dir, err)
	}
	return nil
}
