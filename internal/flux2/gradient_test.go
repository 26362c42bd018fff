package flux2_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/tensor"
	"longship/internal/flux2"
	"longship/internal/rng"
)

// The gradient along a direction is what the loss does when everything moves
// along it: first each kind of parameter alone, then all at once.
func TestGradientsMatchFiniteDifferences(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	m := h.model(c, weightSet(c, tensor.F32, random), set, tinyShape)
	in, target := h.input(c, tinyShape)
	ctx := h.ctx(64 << 20)
	opt := flux2.TrainOptions{Inputs: flux2.InputGrads{
		Tokens: h.tensor(nil, in.Tokens.Shape...), Text: h.tensor(nil, in.Text.Shape...)}}
	at := h.pass(m, ctx, in, target, set, opt)

	type variable struct {
		name        string
		value, grad []float32
	}
	all := []variable{{"tokens", in.Tokens.Float32s(), at.in[0]}, {"text", in.Text.Float32s(), at.in[1]}}
	for _, p := range set.Params() {
		all = append(all, variable{p.Name(), p.Value.Float32s(), at.grads[p.Name()]})
	}
	cases := map[string][]variable{"everything": all}
	for _, v := range all {
		cases[v.name] = []variable{v}
	}
	pred := h.tensor(nil, target.Shape...)
	lossAt := func(vs []variable, step float64) float64 {
		for _, v := range vs {
			old := slices.Clone(v.value)
			defer copy(v.value, old)
			dir := rng.New(5, "test/direction", v.name)
			for i := range v.value {
				v.value[i] += float32(step * dir.Normal(uint64(i)))
			}
		}
		var loss float64
		require.NoError(t, m.Forward(ctx, in, pred))
		require.NoError(t, h.stream.Sync())
		for i, p := range pred.Float32s() {
			d := float64(p) - float64(target.Float32s()[i])
			loss += d * d / 2
		}
		return loss
	}
	for name, vs := range cases {
		var want, size float64
		for _, v := range vs {
			dir := rng.New(5, "test/direction", v.name)
			for i, g := range v.grad {
				want += float64(g) * dir.Normal(uint64(i))
				size += float64(g) * float64(g)
			}
		}
		// Four points: the error is of fourth order in the step.
		const e = 4e-3
		got := (8*(lossAt(vs, e)-lossAt(vs, -e)) - (lossAt(vs, 2*e) - lossAt(vs, -2*e))) / (12 * e)
		if math.Abs(got-want) > 2e-3*math.Sqrt(size)+2e-3 {
			t.Errorf("%s: the loss changes by %.6g, the gradient says %.6g (norm %.3g)", name, got, want, math.Sqrt(size))
		}
	}
}

// The backward pass ends at the lowest block that has something to train, and
// what it computes is the same as where everything is trained.
func TestBackwardEndsAtTheLowestTrainedBlock(t *testing.T) {
	h, c := newHost(t), tiny()
	in, target := h.input(c, tinyShape)
	ctx := h.ctx(64 << 20)
	ws := weightSet(c, tensor.F32, random)
	for name, tc := range map[string]struct {
		targets []string
		blocks  []int
	}{
		"last single block":   {[]string{"single_blocks.2.*"}, []int{4}},
		"second single block": {[]string{"single_blocks.1.linear1"}, []int{4, 3}},
		"last double block":   {[]string{"double_blocks.1.img_mlp.*"}, []int{4, 3, 2, 1}},
		"text of the first":   {[]string{"double_blocks.0.txt_attn.qkv"}, []int{4, 3, 2, 1, 0}},
		"nothing":             {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			set := h.emptySet(c)
			if tc.targets != nil {
				set = h.loras(c, 3, tc.targets...)
			}
			m := h.model(c, ws, set, tinyShape)
			var visited []int
			opt := flux2.TrainOptions{After: func(b int) error { visited = append(visited, b); return nil }}
			short := h.pass(m, ctx, in, target, set, opt)
			require.Equal(t, tc.blocks, visited)
			opt.Inputs.Text = h.tensor(nil, in.Text.Shape...)
			deep := h.pass(m, ctx, in, target, set, opt)
			require.Equal(t, deep.grads, short.grads)
			for name, g := range short.grads {
				require.True(t, slices.ContainsFunc(g, func(v float32) bool { return v != 0 }), name)
			}
		})
	}
}

// When After is called for a block its gradients are complete.
func TestAfterSeesCompleteGradients(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	m := h.model(c, weightSet(c, tensor.F32, random), set, tinyShape)
	in, target := h.input(c, tinyShape)
	early := make([][]float32, c.Blocks())
	r := h.pass(m, h.ctx(64<<20), in, target, set, flux2.TrainOptions{After: func(b int) error {
		h.stream.Do(func() error {
			early[b] = slices.Clone(set.Blocks()[b].Grads.Float32s())
			// What an update does: nothing that follows may read the values.
			clearWithNaN(set.Blocks()[b].Values.Float32s())
			return nil
		})
		return nil
	}})
	for b, block := range set.Blocks() {
		require.Equal(t, early[b], block.Grads.Float32s())
	}
	for name, g := range r.grads {
		require.False(t, slices.ContainsFunc(g, func(v float32) bool { return v != v }), name)
	}
}

func clearWithNaN(s []float32) {
	for i := range s {
		s[i] = float32(math.NaN())
	}
}
