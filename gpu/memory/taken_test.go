package memory_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/cpu"
	"longship/gpu/gputest"
	"longship/gpu/memory"
)

// Once the weights are loaded steps take no memory, of the device or the host.
func TestStreamerTakesNothingInAStep(t *testing.T) {
	for _, share := range []float64{0, 0.5, 1} {
		set := modelOf(2, 2, 1, 1, 1, 1)
		host, err := cpu.New()
		require.NoError(t, err)
		dev := &gputest.Counting{Device: host}
		compute, err := dev.NewStream("compute")
		require.NoError(t, err)
		s, err := memory.NewStreamer(context.Background(), dev, set, memory.Options{Streamed: memory.Spread(set.Units, share)})
		require.NoError(t, err)
		s.Bind(compute)
		before := dev.Taken
		require.Positive(t, before)
		for range 3 {
			s.Plan(forwardBackward(6)...)
			walk(t, s, compute, set, forwardBackward(6)...)
		}
		require.NoError(t, compute.Sync())
		require.Equal(t, before, dev.Taken, "share %v", share)
		require.NoError(t, s.Close())
		require.NoError(t, compute.Close())
		require.NoError(t, host.Close())
	}
}
