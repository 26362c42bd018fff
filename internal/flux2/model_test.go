package flux2_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/flux2"
	"longship/internal/golden"
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
	s, err := adapter.New(h.dev, c.Blocks(), adapter.Layers(ts, rank, 2), tensor.F32)
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

// keeps are the ways to keep activations.
var keeps = map[string]flux2.Keep{"input": flux2.KeepInput, "attention": flux2.KeepAttention, "all": flux2.KeepAll}

func TestRecomputedEqualsKept(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	m := h.model(c, weightSet(c, tensor.E5M2, random), set, tinyShape)
	in, target := h.input(c, tinyShape)
	ctx := h.ctx(64 << 20)
	options := func(keep flux2.Keep) flux2.TrainOptions {
		return flux2.TrainOptions{Keep: keep, Inputs: flux2.InputGrads{
			Tokens: h.tensor(nil, in.Tokens.Shape...), Text: h.tensor(nil, in.Text.Shape...)}}
	}
	want := h.pass(m, ctx, in, target, set, options(flux2.KeepAll))
	for name, keep := range keeps {
		require.Equal(t, want, h.pass(m, ctx, in, target, set, options(keep)), name)
	}

	pred := h.tensor(nil, target.Shape...)
	require.NoError(t, m.Forward(ctx, in, pred))
	require.NoError(t, h.stream.Sync())
	require.Equal(t, want.pred, pred.Float32s(), "forward alone")
}

// The bits of a pass do not depend on the number of cores.
func TestAnyNumberOfCores(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	m := h.model(c, weightSet(c, tensor.E5M2, random), set, tinyShape)
	in, target := h.input(c, tinyShape)
	ctx := h.ctx(64 << 20)
	want := h.pass(m, ctx, in, target, set, flux2.TrainOptions{})
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, n := range []int{1, 3, 8} {
		runtime.GOMAXPROCS(n)
		require.Equal(t, want, h.pass(m, ctx, in, target, set, flux2.TrainOptions{}), "%d", n)
	}
}

func TestStreamedEqualsResident(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	ws := weightSet(c, tensor.E5M2, random)
	in, target := h.input(c, tinyShape)
	ctx := h.ctx(64 << 20)
	want := h.pass(h.model(c, ws, set, tinyShape), ctx, in, target, set, flux2.TrainOptions{})
	for _, share := range []float64{0, 0.5, 1} {
		for _, keep := range keeps {
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
	golden.Near(t, "prediction", both.pred, sum.pred, tol)
	golden.Near(t, "gradient of tokens", both.in[0], sum.in[0], 2*tol)
	golden.Near(t, "gradient of text", both.in[1], sum.in[1], 2*tol)
	for name, g := range sum.grads {
		golden.NearL2(t, name, both.grads[name], g, 2*tol)
	}
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
