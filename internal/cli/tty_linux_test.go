package cli_test

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"longship/internal/cli"
	"longship/stages"
)

// longship-tty is longship with log and progress on its controlling terminal,
// which is $COLUMNS wide.
func init() {
	commands["longship-tty"] = func() {
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			panic(err)
		}
		size := unix.Winsize{Row: 40}
		fmt.Sscan(os.Getenv("COLUMNS"), &size.Col)
		if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &size); err != nil {
			panic(err)
		}
		code := cli.Run(os.Args[1:], os.Stdout, tty, stages.Builtin()...)
		if err := tty.Close(); err != nil {
			panic(err)
		}
		os.Exit(code)
	}
}
