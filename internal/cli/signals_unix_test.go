//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInterrupts(t *testing.T) {
	// Another listener keeps the process alive when the relay has ended.
	spare := make(chan os.Signal, 9)
	signal.Notify(spare, os.Interrupt)
	defer signal.Stop(spare)
	relayed, stop := interrupts()
	defer stop()
	for range 3 {
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
		require.Equal(t, os.Interrupt, <-spare)
	}
	for range 2 {
		require.Equal(t, os.Interrupt, <-relayed)
	}
	select {
	case <-relayed:
		t.Error("a third signal was relayed")
	case <-time.After(50 * time.Millisecond):
	}
}
