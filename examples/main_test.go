// Package examples_test runs the program itself: it builds it once, copies an
// example to a folder of its own, starts it as a user does, kills it where a
// test needs that, and looks at exit codes, messages and files.
//
// Tests of minutes and gigabytes run with LONGSHIP_LONG=1 only.
package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// program is the path of the built program.
var program string

func TestMain(m *testing.M) {
	code, err := withProgram(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// withProgram builds the program, with the race detector where the tests have
// it, and removes it after run.
func withProgram(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "longship")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "longship")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	args := []string{"build", "-o", program}
	if raceDetector {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "longship")...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("build the program: %w", err)
	}
	return run(), nil
}
