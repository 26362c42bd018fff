package host

import (
	"os/exec"
	"syscall"
)

// own has the program in a group of its own, which an interrupt at the terminal
// does not reach, and has it killed should this process be.
func own(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
