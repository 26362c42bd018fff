package train

import (
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/dtype"
	"longship/internal/flow"
	"longship/internal/optim"
)

// descend takes steps on an adapter of a type and returns the validation loss
// before and after; after is called behind each step.
func descend(t *testing.T, dt tensor.DType, steps int, lr float64, after func(*adapter.Set)) (from, to float64) {
	s := newSource(t)
	targets, err := adapter.Select(s.model.Modules(), nil, nil)
	require.NoError(t, err)
	tr, err := newTrainer(t.Context(), plan{
		model: s.model, shapes: s.Shapes(), layers: adapter.Layers(targets, 16, 16), dtype: dt, init: adapter.Kaiming, seed: 1,
		timesteps: flow.Timesteps{Type: flow.Linear, ContentOrStyle: flow.Balanced, Max: flow.Steps - 1},
		guidance:  1, micros: 1, clip: 1, scope: scopeGlobal, recompute: recomputeNone, act: f32, validation: 1,
		optimizer: optim.Config{Name: optim.AdamW8bit, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01, Seed: 1},
	}, s)
	require.NoError(t, err)
	from, _, err = tr.validate(t.Context(), s)
	require.NoError(t, err)
	for k := range steps {
		b := s.training(k)
		d, err := tr.draws.training(t.Context(), tr.timesteps, tr.seed, k, 0, b)
		require.NoError(t, err)
		require.NoError(t, tr.micro(b, d, 0, true, optim.Step{N: k, LR: lr}))
		tr.board.post(k+1, lr)
		_, err = tr.board.read(t.Context())
		require.NoError(t, err)
		after(tr.set)
	}
	to, _, err = tr.validate(t.Context(), s)
	require.NoError(t, err)
	require.NoError(t, tr.close())
	s.close()
	return from, to
}

// toNearest rounds a float32 adapter to bfloat16, as one would be without
// stochastic rounding.
func toNearest(s *adapter.Set) {
	for _, b := range s.Blocks() {
		if len(b.Params) > 0 {
			half := make([]uint16, b.Values.Len())
			dtype.F32ToBF16(half, b.Values.Float32s())
			dtype.BF16ToF32(b.Values.Float32s(), half)
		}
	}
}

// A bfloat16 adapter learns what a float32 one does, because it is rounded
// stochastically: to nearest, most updates are too small to count.
func TestBFloat16LearnsAsFloat32(t *testing.T) {
	const steps, lr = 300, 3e-4
	nothing := func(*adapter.Set) {}
	from, wide := descend(t, tensor.F32, steps, lr, nothing)
	_, half := descend(t, tensor.BF16, steps, lr, nothing)
	_, nearest := descend(t, tensor.F32, steps, lr, toNearest)
	t.Logf("loss %.4f, after %d steps %.4f in float32, %.4f in bfloat16, %.4f rounded to nearest", from, steps, wide, half, nearest)
	require.InEpsilon(t, wide, half, 0.01)
	require.InEpsilon(t, from-wide, from-half, 0.03)
	require.Less(t, from-nearest, 0.9*(from-wide))
}
