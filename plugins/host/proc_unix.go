//go:build unix

package host

import (
	"errors"
	"os/exec"
	"syscall"
)

// adopt returns what ends the programs that the program started and left behind.
func adopt(cmd *exec.Cmd) (end func(), err error) { return func() { _ = kill(cmd) }, nil }

// kill kills the program and all of its group.
func kill(cmd *exec.Cmd) error {
	if cmd.Process == nil {
		return nil
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
