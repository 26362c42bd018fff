package flux2_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/flux2"
	"longship/internal/rng"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny is a model of every kind of block, small enough for finite differences.
func tiny() flux2.Config {
	c := flux2.Default()
	c.InChannels, c.OutChannels, c.DoubleBlocks, c.SingleBlocks = 8, 8, 2, 3
	c.HeadDim, c.Heads, c.TextDim, c.Axes = 16, 2, 24, []int{4, 4, 4, 4}
	return c
}

var tinyShape = flux2.Shape{B: 2, H: 3, W: 2, L: 5, Refs: [][2]int{{2, 1}}}

// loras puts pairs with values on the targets.
func (h *host) loras(c flux2.Config, rank int, targets ...string) *adapter.Set {
	ts, err := adapter.Select(c.Modules(), targets, nil)
	require.NoError(h.t, err)
	s, err := adapter.New(h.dev, c.Blocks(), adapter.Layers(ts, rank, 2))
	require.NoError(h.t, err)
	h.t.Cleanup(func() { require.NoError(h.t, s.Close()) })
	require.NoError(h.t, s.Write(h.stream, func(p adapter.Param, dst []float32) error {
		rng.New(1, "test/lora", p.Name()).FillNormal(dst, 0)
		for i := range dst {
			dst[i] *= 0.2
		}
		return nil
	}))
	return s
}

// normal is a tensor of normal values.
func (h *host) normal(name string, shape ...int) tensor.Tensor {
	t := h.tensor(nil, shape...)
	rng.New(3, "test/input", name).FillNormal(t.Float32s(), 0)
	return t
}

// input is a batch of normal values, and what loss compares the prediction with.
func (h *host) input(c flux2.Config, s flux2.Shape) (in flux2.Input, target tensor.Tensor) {
	image, refs := s.Tokens()
	in = flux2.Input{Shape: s, Tokens: h.normal("tokens", s.B, image, c.InChannels), Text: h.normal("text", s.B, s.L, c.TextDim),
		Timestep: h.tensor(nil, s.B), Guidance: h.tensor(nil, s.B)}
	if refs > 0 {
		in.Refs = h.normal("refs", s.B, refs, c.InChannels)
	}
	for i := range s.B {
		in.Timestep.Float32s()[i] = 0.8 - 0.3*float32(i)
		in.Guidance.Float32s()[i] = 1 + float32(i)
	}
	return in, h.normal("target", s.B, image, c.OutChannels)
}

// squared is the loss ½·Σ(pred − target)²; it hands its value and the prediction out.
func squared(target tensor.Tensor, value *float64, pred *[]float32) flux2.Loss {
	return func(c *ops.Ctx, p, dp tensor.Tensor) {
		c.Run(ops.Copy{Y: dp, X: p}, ops.AddScaled{Y: dp, X: target, Alpha: -1})
		c.Stream.Do(func() error {
			*value = 0
			for _, d := range dp.Float32s() {
				*value += float64(d) * float64(d) / 2
			}
			*pred = contiguous(p)
			return nil
		})
	}
}

// result is all that a training pass computes.
type result struct {
	loss  float64
	pred  []float32
	grads map[string][]float32
	in    [2][]float32
}

// pass runs one training pass from zero gradients.
func (h *host) pass(m *flux2.Model, ctx *ops.Ctx, in flux2.Input, target tensor.Tensor, set *adapter.Set, opt flux2.TrainOptions) result {
	h.clearGrads(set)
	var r result
	require.NoError(h.t, m.Train(ctx, in, squared(target, &r.loss, &r.pred), opt))
	require.NoError(h.t, h.stream.Sync())
	r.grads = map[string][]float32{}
	for _, p := range set.Params() {
		r.grads[p.Name()] = slices.Clone(p.Grad.Float32s())
	}
	for i, g := range []tensor.Tensor{opt.Inputs.Tokens, opt.Inputs.Text} {
		if g.Valid() {
			r.in[i] = slices.Clone(g.Float32s())
		}
	}
	return r
}

func TestRecomputedEqualsKept(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	m := h.model(c, weightSet(c, tensor.E5M2, random), set, tinyShape)
	in, target := h.input(c, tinyShape)
	ctx := h.ctx(64 << 20)
	want := h.pass(m, ctx, in, target, set, flux2.TrainOptions{Keep: true})
	require.Equal(t, want, h.pass(m, ctx, in, target, set, flux2.TrainOptions{}))

	pred := h.tensor(nil, target.Shape...)
	require.NoError(t, m.Forward(ctx, in, pred))
	require.NoError(t, h.stream.Sync())
	require.Equal(t, want.pred, pred.Float32s(), "forward alone")
}

func TestStreamedEqualsResident(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	ws := weightSet(c, tensor.E5M2, random)
	in, target := h.input(c, tinyShape)
	ctx := h.ctx(64 << 20)
	want := h.pass(h.model(c, ws, set, tinyShape), ctx, in, target, set, flux2.TrainOptions{})
	for _, share := range []float64{0, 0.5, 1} {
		for _, keep := range []bool{false, true} {
			for _, announced := range []bool{false, true} {
				t.Run(fmt.Sprintf("share %v keep %v announced %v", share, keep, announced), func(t *testing.T) {
					s, err := memory.NewStreamer(context.Background(), h.dev, ws, memory.Options{Streamed: memory.Spread(ws.Units, share)})
					require.NoError(t, err)
					defer func() { require.NoError(t, s.Close()) }()
					s.Bind(h.stream)
					m := h.modelOn(c, s, set, tinyShape)
					opt := flux2.TrainOptions{Keep: keep}
					for range 3 {
						if announced {
							m.PlanStep(opt)
						}
						require.Equal(t, want, h.pass(m, ctx, in, target, set, opt))
						if announced {
							m.PlanForward()
						}
						pred := h.tensor(nil, target.Shape...)
						require.NoError(t, m.Forward(ctx, in, pred))
						require.NoError(t, h.stream.Sync())
						require.Equal(t, want.pred, pred.Float32s())
					}
				})
			}
		}
	}
}

// A quantised weight computes what its expanded values compute.
func TestQuantisedEqualsExpanded(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	in, target := h.input(c, tinyShape)
	ctx := h.ctx(64 << 20)
	for _, dt := range []tensor.DType{tensor.E5M2, tensor.BF16} {
		ws := weightSet(c, dt, random)
		want := h.pass(h.model(c, ws, set, tinyShape), ctx, in, target, set, flux2.TrainOptions{})
		plain := weightSet(c, tensor.F32, func(name string, shape []int) []float32 { return h.expanded(ws, name, shape) })
		require.Equal(t, want, h.pass(h.model(c, plain, set, tinyShape), ctx, in, target, set, flux2.TrainOptions{}), "%s", dt)
	}
}

// expanded reads a weight of a set as float32.
func (h *host) expanded(ws *memory.WeightSet, name string, shape []int) []float32 {
	for _, u := range append([]memory.Unit{ws.Outer}, ws.Units...) {
		for _, e := range u.Entries {
			if e.Name != name {
				continue
			}
			buf := h.alloc(u.Bytes)
			require.NoError(h.t, ws.Read(context.Background(), u, buf.Host()))
			p := memory.Params{}
			p.Bind(u, buf, 0)
			y := h.tensor(nil, shape...)
			h.stream.Launch(ops.Expand{Y: y, W: p[name]})
			require.NoError(h.t, h.stream.Sync())
			return y.Float32s()
		}
	}
	h.t.Fatalf("no weight %s", name)
	return nil
}

func TestBatchEqualsItsItems(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	one := tinyShape
	one.B = 1
	m := h.model(c, weightSet(c, tensor.F32, random), set, tinyShape, one)
	in, target := h.input(c, tinyShape)
	ctx := h.ctx(64 << 20)
	grads := func(s flux2.Shape) flux2.InputGrads {
		return flux2.InputGrads{Tokens: h.tensor(nil, s.B, s.H*s.W, c.InChannels), Text: h.tensor(nil, s.B, s.L, c.TextDim)}
	}
	both := h.pass(m, ctx, in, target, set, flux2.TrainOptions{Inputs: grads(tinyShape)})

	var sum result
	for b := range tinyShape.B {
		item := func(t tensor.Tensor) tensor.Tensor {
			n := t.Rows() / tinyShape.B
			return t.RowRange(b*n, (b+1)*n)
		}
		of := flux2.Input{Shape: one, Tokens: item(in.Tokens), Refs: item(in.Refs), Text: item(in.Text),
			Timestep: h.tensor(in.Timestep.Float32s()[b:], 1), Guidance: h.tensor(in.Guidance.Float32s()[b:], 1)}
		r := h.pass(m, ctx, of, item(target), set, flux2.TrainOptions{Inputs: grads(one)})
		sum.loss += r.loss
		sum.pred = append(sum.pred, r.pred...)
		for i := range sum.in {
			sum.in[i] = append(sum.in[i], r.in[i]...)
		}
		if sum.grads == nil {
			sum.grads = r.grads
			continue
		}
		for name, g := range r.grads {
			for i, v := range g {
				sum.grads[name][i] += v
			}
		}
	}
	const tol = 1e-6
	require.InEpsilon(t, sum.loss, both.loss, tol)
	near(t, "prediction", sum.pred, both.pred, tol)
	near(t, "gradient of tokens", sum.in[0], both.in[0], 2*tol)
	near(t, "gradient of text", sum.in[1], both.in[1], 2*tol)
	for name, g := range sum.grads {
		nearL2(t, name, g, both.grads[name], 2*tol)
	}
}

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

func TestDryRunGivesTheExactWorkspace(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	src, err := memory.NewResident(context.Background(), h.dev, weightSet(c, tensor.E5M2, random))
	require.NoError(t, err)
	defer func() { require.NoError(t, src.Close()) }()
	m := h.modelOn(c, src, set, tinyShape)
	in, target := h.input(c, tinyShape)
	var loss float64
	var pred []float32
	for _, keep := range []bool{false, true} {
		opt := flux2.TrainOptions{Keep: keep}
		size, _ := h.dry(c, src.Layout(), set, tinyShape, opt)
		require.NoError(t, m.Train(h.ctx(size), in, squared(target, &loss, &pred), opt))
		require.NoError(t, h.stream.Sync())

		small, err := h.dev.NewStream("small")
		require.NoError(t, err)
		ctx := &ops.Ctx{Stream: small, Act: tensor.F32, Arena: tensor.NewArena(h.alloc(size-1), small.Fail)}
		require.NoError(t, m.Train(ctx, in, squared(target, &loss, &pred), opt))
		require.ErrorIs(t, small.Close(), gpu.ErrOutOfMemory)
	}
}

// A step takes no more products than the mathematics asks for.
func TestWorkOfAStep(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	ws := weightSet(c, tensor.F32, random)
	work := c.Work(tinyShape, func(module string) int64 {
		var n int64
		for _, l := range set.Layers() {
			if l.Module.Name == module {
				n += l.Params()
			}
		}
		return n
	})
	for _, keep := range []bool{false, true} {
		_, kernels := h.dry(c, memory.Layout(ws), set, tinyShape, flux2.TrainOptions{Keep: keep})
		var got, want float64
		for _, name := range []string{"gemm", "attention", "attention_backward"} {
			got += float64(kernels[name].FLOPs)
		}
		for i, w := range work {
			want += w.Forward + w.Backward
			if !keep && i < c.Blocks()-1 {
				want += w.Recompute
			}
		}
		// The first block's input needs no gradient through q, k and v.
		image, refs := tinyShape.Tokens()
		d, r := float64(c.Width()), 3.0
		want -= 2 * float64(tinyShape.B*(tinyShape.L+image+refs)) * (3*d*d + r*d)
		require.InEpsilon(t, want+float64(outerFLOPs(c, tinyShape)), got, 1e-9, "keep %v", keep)
	}
}

// outerFLOPs counts the products outside the blocks.
func outerFLOPs(c flux2.Config, s flux2.Shape) int {
	image, refs := s.Tokens()
	d, b := c.Width(), s.B
	embed := (image+refs)*d*c.InChannels + s.L*d*c.TextDim
	vec := 2*(d*c.TimeChannels+d*d) + (6+6+3+2)*d*d
	head := 2 * image * d * c.OutChannels // forward and backward
	return 2 * b * (embed + vec + head)
}

func TestPassRefuses(t *testing.T) {
	h, c := newHost(t), tiny()
	m := h.model(c, weightSet(c, tensor.F32, random), h.emptySet(c), tinyShape)
	ctx := h.ctx(64 << 20)
	good, target := h.input(c, tinyShape)
	for name, tc := range map[string]struct {
		change func(*flux2.Input)
		want   string
	}{
		"no tokens":        {func(in *flux2.Input) { in.Tokens = tensor.Tensor{} }, "tokens"},
		"wrong text":       {func(in *flux2.Input) { in.Text = in.Tokens }, "text"},
		"no timestep":      {func(in *flux2.Input) { in.Timestep = tensor.Tensor{} }, "timestep"},
		"no references":    {func(in *flux2.Input) { in.Refs = tensor.Tensor{} }, "references"},
		"unprepared shape": {func(in *flux2.Input) { in.Shape.Refs = [][2]int{{1, 2}} }, "not prepared"},
	} {
		t.Run(name, func(t *testing.T) {
			in := good
			tc.change(&in)
			require.ErrorContains(t, m.Forward(ctx, in, target), tc.want)
		})
	}
	require.NoError(t, m.Forward(ctx, good, target))
	require.NoError(t, h.stream.Sync())

	broken := weightSet(c, tensor.F32, random)
	broken.Units[3].Entries[2].Name = "other"
	m = h.model(c, broken, h.emptySet(c), tinyShape)
	require.ErrorContains(t, m.Forward(ctx, good, target), "txt_attn.qkv.weight is missing")
	require.NoError(t, h.stream.Sync())
}
