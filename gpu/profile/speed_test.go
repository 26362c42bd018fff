package profile_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/profile"
)

// BenchmarkStep is what the measuring of a step costs the host: FLUX.2-dev with
// every unit streamed, 56 blocks forward and backward, and no work.
func BenchmarkStep(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("measured=%t", on), func(b *testing.B) {
			dev, err := cpu.New()
			require.NoError(b, err)
			compute, _ := dev.NewStream("compute")
			copies, _ := dev.NewStream("copies")
			var r *profile.Recorder
			if on {
				r = profile.New(dev, compute)
			}
			lane := r.Lane("weights", copies)
			for b.Loop() {
				for h := range 2 {
					if h == 0 {
						r.Forward()
					} else {
						r.Backward()
					}
					for range 56 {
						var ready gpu.Event
						lane.Copy("unit", 1, func() { ready = copies.Record() })
						r.Wait("weights", func() { compute.Wait(ready) })
					}
				}
				r.End()
				require.NoError(b, compute.Sync())
				r.Collect()
			}
			require.NoError(b, compute.Close())
			require.NoError(b, copies.Close())
		})
	}
}
