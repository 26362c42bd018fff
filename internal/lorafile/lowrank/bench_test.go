package lowrank

import (
	"math/rand/v2"
	"testing"
)

// One pair of FLUX.2-dev at rank 2048 (a feed-forward's first Linear: 0.7 % of
// such a file), brought to 128.
func BenchmarkFullSize(b *testing.B) {
	const in, out, rank = 6144, 36864, 2048
	r := rand.New(rand.NewPCG(1, 2))
	down, up := make([]float32, rank*in), make([]float32, out*rank)
	for _, m := range [][]float32{down, up} {
		for i := range m {
			m[i] = float32(r.NormFloat64())
		}
	}
	for b.Loop() {
		if _, err := Truncate(down, up, in, out, rank, Want{Rank: 128}); err != nil {
			b.Fatal(err)
		}
	}
}
