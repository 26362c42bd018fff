//go:build !unix

package examples_test

import "os"

// showGoroutines ends a process that hangs.
func showGoroutines(p *os.Process) error { return p.Kill() }
