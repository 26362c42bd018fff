//go:build unix && !linux

package host

import (
	"os/exec"
	"syscall"
)

// own has the program in a group of its own, which an interrupt at the terminal
// does not reach. Should this process be killed, its standard input ends.
func own(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
