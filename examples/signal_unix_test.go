//go:build unix

package examples_test

import (
	"os"
	"syscall"
)

// showGoroutines ends a process that hangs; Go prints what it was doing.
func showGoroutines(p *os.Process) error { return p.Signal(syscall.SIGQUIT) }
