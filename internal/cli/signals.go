package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// interrupts relays the first two requests to end to a run: the first ends it
// after the work in hand, the second at once. The system answers a third by
// ending the process, should closing hang. stop must be called.
func interrupts() (relayed <-chan os.Signal, stop func()) {
	in, out := make(chan os.Signal, 2), make(chan os.Signal, 2)
	ended := make(chan struct{})
	signal.Notify(in, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer signal.Stop(in)
		for range 2 {
			select {
			case s := <-in:
				out <- s
			case <-ended:
				return
			}
		}
	}()
	return out, func() { close(ended) }
}
