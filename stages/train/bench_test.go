package train

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/adapter"
	"longship/internal/flow"
	"longship/internal/flux2"
	"longship/internal/optim"
	"longship/internal/rng"
	"longship/stages/port"
)

// quickstart is the shape of the model that the repository brings: one head of
// 128, one double block and two single ones.
func quickstart() flux2.Config {
	c := flux2.Default()
	c.DoubleBlocks, c.SingleBlocks, c.Heads, c.TextDim = 1, 2, 1, 96
	return c
}

// BenchmarkStep is one step of the quickstart: a batch of one image of 128 x 128
// with 64 text tokens, 128 tokens together, rank 16 on every Linear, AdamW, one
// norm over all gradients.
func BenchmarkStep(b *testing.B) {
	for again := range keeps {
		b.Run("recompute="+again, func(b *testing.B) {
			cfg := quickstart()
			sh := port.Shape{B: 1, H: 8, W: 8, L: 64}
			targets, err := adapter.Select(cfg.Modules(), nil, nil)
			require.NoError(b, err)
			tr := newTestTrainer(b, plan{
				model: cfg, shapes: []port.Shape{sh}, layers: adapter.Layers(targets, 16, 16), dtype: f32, init: adapter.Kaiming,
				timesteps: flow.Timesteps{Type: flow.Weighted, ContentOrStyle: flow.Balanced, Max: flow.Steps - 1},
				guidance:  1, micros: 1, clip: 1, scope: scopeGlobal, recompute: again, act: f32,
				optimizer: optim.Config{Name: optim.AdamW, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01},
			}, resident(b, randomModel(cfg)))
			ctx := context.Background()
			step := 0
			batch := tr.hostBatch(b, sh)
			defer batch.Release(tr.compute.Record())
			rng.New(1, "bench").FillNormal(batch.Latent.Float32s(), 0)
			rng.New(2, "bench").FillNormal(batch.Text.Float32s(), 0)
			for b.Loop() {
				lent := *batch
				lent.Free = nil
				d, err := tr.draws.training(ctx, tr.timesteps, 42, step, 0, &lent)
				require.NoError(b, err)
				require.NoError(b, tr.micro(&lent, d, 0, true, optim.Step{N: step, LR: 1e-4}))
				step++
				tr.board.post(step, 1e-4)
				_, err = tr.board.read(ctx)
				require.NoError(b, err)
			}
		})
	}
}
