package prefetch

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"longship/stages/port"
)

func samplesOf(t *rapid.T) []*port.Sample {
	n := rapid.IntRange(1, 20).Draw(t, "samples")
	out := make([]*port.Sample, n)
	for i := range out {
		out[i] = &port.Sample{
			ID: fmt.Sprintf("d/%02d", i), Repeats: rapid.IntRange(1, 3).Draw(t, "repeats"), TextTokens: 8,
			Bucket: rapid.SampledFrom([]port.Bucket{{W: 64, H: 64}, {W: 32, H: 96}, {W: 96, H: 32}}).Draw(t, "bucket"),
		}
	}
	return out
}

func ids(batch []*port.Sample) (out []string) {
	for _, s := range batch {
		out = append(out, s.ID)
	}
	return out
}

func TestEveryEpochShowsEverySample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := samplesOf(t)
		size := rapid.IntRange(1, 4).Draw(t, "batch size")
		o := newOrder(42, samples, size)
		for epoch := range 3 {
			seen := map[string]int{}
			for k := range o.epochs {
				batch := o.batch(epoch*o.epochs + k)
				require.Len(t, batch, size)
				for _, s := range batch {
					require.Equal(t, batch[0].Bucket, s.Bucket, "one bucket a batch")
					seen[s.ID]++
				}
			}
			for _, s := range samples {
				require.GreaterOrEqual(t, seen[s.ID], s.Repeats, s.ID)
			}
		}
	})
}

// A resumed run asks for the batches from k on, and its samples may have
// arrived in another order.
func TestOrderDoesNotDependOnArrivalOrPast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := samplesOf(t)
		shuffled := rapid.Permutation(samples).Draw(t, "arrival")
		through, resumed := newOrder(7, samples, 2), newOrder(7, shuffled, 2)
		k := rapid.IntRange(0, 40).Draw(t, "k")
		for i := range k {
			through.batch(i)
		}
		require.Equal(t, ids(through.batch(k)), ids(resumed.batch(k)))
	})
}

func TestEpochsAndSeedsDiffer(t *testing.T) {
	var samples []*port.Sample
	for i := range 12 {
		samples = append(samples, &port.Sample{ID: fmt.Sprint(i), Bucket: port.Bucket{W: 16, H: 16}})
	}
	epoch := func(seed uint64, e int) (out []string) {
		o := newOrder(seed, samples, 1)
		for k := range o.epochs {
			out = append(out, ids(o.batch(e*o.epochs+k))...)
		}
		return out
	}
	require.NotEqual(t, epoch(1, 0), epoch(1, 1))
	require.NotEqual(t, epoch(1, 0), epoch(2, 0))
}

func TestConfigFaults(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want []string
	}{
		{Config{Offload: "auto", Ring: 3, BatchSize: 1}, nil},
		{Config{Offload: "0.71", Ring: 3, BatchSize: 1}, nil},
		{Config{Offload: "1.5", Ring: 2, BatchSize: 0}, []string{"offload", "ring", "batch_size"}},
		{Config{Offload: "most", Ring: 3, BatchSize: 1}, []string{"offload"}},
		{Config{Offload: "NaN", Ring: 3, BatchSize: 1}, []string{"offload"}},
	} {
		err := c.cfg.Validate()
		if len(c.want) == 0 {
			require.NoError(t, err)
			continue
		}
		for _, w := range c.want {
			require.ErrorContains(t, err, w+":")
		}
	}
}
