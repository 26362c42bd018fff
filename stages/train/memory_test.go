package train

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/gputest"
	"longship/internal/adapter"
	"longship/internal/flow"
	"longship/internal/flux2"
	"longship/internal/optim"
	"longship/stages/port"
)

// metered is a source on another device.
type metered struct {
	*fakeSource
	on gpu.Device
}

func (m metered) Device() gpu.Device { return m.on }

// The workspace that the dry run finds is enough for every shape, and nothing
// else is taken in a step or a validation.
func TestNothingIsTakenInAStep(t *testing.T) {
	for again, keep := range keeps {
		s := newSource(t)
		dev := &gputest.Counting{Device: s.dev}
		tr, err := newTrainer(t.Context(), s.smallPlan(again), metered{s, dev})
		require.NoError(t, err)
		require.Equal(t, keep, tr.keep)
		before := dev.Taken
		require.Positive(t, before)
		ctx := context.Background()
		for k := range 4 {
			b := s.training(k)
			d, err := tr.draws.training(ctx, tr.timesteps, tr.seed, k, 0, b)
			require.NoError(t, err)
			require.NoError(t, tr.micro(b, d, 0, true, optim.Step{N: k, LR: 1e-3}))
			tr.board.post(k+1, 1e-3)
			r, err := tr.board.read(ctx)
			require.NoError(t, err)
			require.False(t, r.skipped)
			_, _, err = tr.validate(ctx, s)
			require.NoError(t, err)
		}
		require.Equal(t, before, dev.Taken)
		require.Equal(t, tr.slab, tr.ctx.Arena.Peak(), "the dry run is not the run")
		require.NoError(t, tr.close())
		s.close()
	}
}

// smallPlan trains everything at rank 4.
func (s *fakeSource) smallPlan(recompute string) plan {
	targets, err := adapter.Select(s.model.Modules(), nil, nil)
	require.NoError(s.t, err)
	return plan{
		model: s.model, shapes: s.Shapes(), layers: adapter.Layers(targets, 4, 4), dtype: f32, init: adapter.Gaussian,
		timesteps: flow.Timesteps{Type: flow.Shift, ContentOrStyle: flow.Style, Max: flow.Steps - 1},
		guidance:  1, micros: 1, scope: scopeNone, emaDecay: 0.9, recompute: recompute, act: f32, validation: 1,
		optimizer: optim.Config{Name: optim.AdamW8bit, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8},
	}
}

// What is kept is the most that fits beside all weights.
func TestMostThatFitsIsKept(t *testing.T) {
	built := func(recompute string, room int64) (keep flux2.Keep, bytes int64) {
		s := newSource(t)
		s.room = room
		tr, err := newTrainer(t.Context(), s.smallPlan(recompute), s)
		require.NoError(t, err)
		keep, bytes = tr.keep, tr.dev.(*meter).bytes
		require.NoError(t, tr.close())
		s.close()
		return keep, bytes
	}
	_, inputs := built(recomputeBlock, 0)
	_, attention := built(recomputeLinear, 0)
	_, all := built(recomputeNone, 0)
	require.Less(t, inputs, attention)
	require.Less(t, attention, all)
	for name, c := range map[string]struct {
		room int64
		want flux2.Keep
	}{
		"all":               {all, flux2.KeepAll},
		"a byte less":       {all - 1, flux2.KeepAttention},
		"attention":         {attention, flux2.KeepAttention},
		"again a byte less": {attention - 1, flux2.KeepInput},
		"not even inputs":   {1, flux2.KeepInput},
		"no limit":          {0, flux2.KeepInput},
	} {
		t.Run(name, func(t *testing.T) {
			keep, _ := built(recomputeAuto, c.room)
			require.Equal(t, c.want, keep)
		})
	}
}

var _ port.Source = (*fakeSource)(nil)
