package adapter_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/nn"
	"longship/internal/rng"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a model with two blocks of each kind and odd sizes.
func small() flux2.Config {
	c := flux2.Default()
	c.DoubleBlocks, c.SingleBlocks, c.Heads, c.HeadDim, c.Axes = 2, 2, 3, 10, []int{2, 2, 2, 4}
	return c
}

func device(t testing.TB) (gpu.Device, gpu.Stream) {
	dev, err := cpu.New()
	require.NoError(t, err)
	st, err := dev.NewStream("compute")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, st.Close())
		require.NoError(t, dev.Close())
	})
	return dev, st
}

func newSet(t testing.TB, dev gpu.Device, c flux2.Config, rank int, alpha float64, targets ...string) *adapter.Set {
	return newSetOf(t, tensor.F32, dev, c, rank, alpha, targets...)
}

// both are the types that an adapter may have.
var both = []tensor.DType{tensor.F32, tensor.BF16}

// wide returns the elements of a parameter.
func wide(t tensor.Tensor) []float32 {
	if t.DType == tensor.F32 {
		return t.Float32s()
	}
	x := make([]float32, t.Len())
	dtype.BF16ToF32(x, tensor.Host[uint16](t))
	return x
}

func newSetOf(t testing.TB, dt tensor.DType, dev gpu.Device, c flux2.Config, rank int, alpha float64, targets ...string) *adapter.Set {
	ts, err := adapter.Select(c.Modules(), targets, nil)
	require.NoError(t, err)
	s, err := adapter.New(dev, c.Blocks(), adapter.Layers(ts, rank, alpha), dt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestSetLaysOutBlocks(t *testing.T) {
	for _, dt := range both {
		t.Run(dt.String(), func(t *testing.T) { laysOutBlocks(t, dt) })
	}
}

func laysOutBlocks(t *testing.T, dt tensor.DType) {
	dev, st := device(t)
	c := small()
	s := newSetOf(t, dt, dev, c, 5, 5)
	require.NoError(t, s.Init(st, 42, adapter.Kaiming))
	var params int64
	seen := map[string]bool{}
	for i, b := range s.Blocks() {
		end := b.Values.Off
		for _, p := range b.Params {
			require.Equal(t, i, p.Layer.Module.Block)
			require.False(t, seen[p.Name()], "%s twice", p.Name())
			seen[p.Name()] = true
			require.Equal(t, dt, p.Value.DType)
			require.Equal(t, dt, p.Grad.DType)
			require.Zero(t, p.Value.Off%tensor.Align)
			require.GreaterOrEqual(t, p.Value.Off, end, "%s overlaps", p.Name())
			end = p.Value.Off + p.Value.Bytes()
			require.Equal(t, p.Value.Off-b.Values.Off, p.Grad.Off-b.Grads.Off)
			require.Equal(t, p.Value.Shape, p.Grad.Shape)
			params += int64(p.Value.Len())
		}
		require.LessOrEqual(t, end, b.Values.Off+b.Values.Bytes())
		// Padding is zero, so that norms and updates of a whole block are right.
		sum := 0.0
		for _, v := range wide(b.Values) {
			sum += math.Abs(float64(v))
		}
		for _, p := range b.Params {
			for _, v := range wide(p.Value) {
				sum -= math.Abs(float64(v))
			}
		}
		require.InDelta(t, 0, sum, 1e-9)
		require.False(t, slices.ContainsFunc(wide(b.Grads), func(v float32) bool { return v != 0 }))
	}
	require.Equal(t, s.Size(), params)
	require.Len(t, s.Params(), 2*len(s.Layers()))
	require.Len(t, s.Layers(), len(c.Modules()))
}

func TestInit(t *testing.T) {
	dev, st := device(t)
	c := small()
	for how, deviation := range map[string]func(in, rank int) float64{
		adapter.Kaiming:  func(in, _ int) float64 { return 1 / math.Sqrt(3*float64(in)) },
		adapter.Gaussian: func(_, rank int) float64 { return 1 / float64(rank) },
	} {
		t.Run(how, func(t *testing.T) {
			s := newSet(t, dev, c, 64, 64)
			require.NoError(t, s.Init(st, 42, how))
			for _, p := range s.Params() {
				v := p.Value.Float32s()
				if p.Part == adapter.PartB {
					require.Zero(t, slices.MaxFunc(v, func(a, b float32) int { return int(math.Abs(float64(a)) - math.Abs(float64(b))) }))
					continue
				}
				var sum, squares float64
				for _, x := range v {
					sum += float64(x)
					squares += float64(x) * float64(x)
				}
				n := float64(len(v))
				want := deviation(p.Layer.Module.In, p.Layer.Rank)
				require.InDelta(t, 0, sum/n/want, 5/math.Sqrt(n), "mean of %s", p.Name())
				require.InEpsilon(t, want, math.Sqrt(squares/n), 5/math.Sqrt(n), "deviation of %s", p.Name())
				if how == adapter.Kaiming {
					bound := float32(1 / math.Sqrt(float64(p.Layer.Module.In)))
					require.LessOrEqual(t, slices.Max(v), bound)
					require.GreaterOrEqual(t, slices.Min(v), -bound)
				}
			}
		})
	}
	s := newSet(t, dev, c, 2, 2)
	require.ErrorContains(t, s.Init(st, 42, "zeros"), "zeros")
}

// A tensor's start depends on the seed and its name, not on its neighbours.
func TestInitIsIndependentOfTheOthers(t *testing.T) {
	dev, st := device(t)
	c := small()
	values := func(seed uint64, targets ...string) map[string][]float32 {
		s := newSet(t, dev, c, 4, 4, targets...)
		require.NoError(t, s.Init(st, seed, adapter.Kaiming))
		out := map[string][]float32{}
		require.NoError(t, s.Read(st, func(p adapter.Param, src []float32) error {
			require.Equal(t, p.Value.Float32s(), src)
			out[p.Name()] = slices.Clone(src)
			return nil
		}))
		return out
	}
	all, some := values(1), values(1, "linear1", "double_blocks.1.*")
	for name, v := range some {
		require.Equal(t, all[name], v, name)
	}
	for name, v := range values(2, "linear1") {
		if v[0] != 0 {
			require.NotEqual(t, all[name], v, name)
		}
	}
}

// A pair on parts of a module computes what its product, added to the weight, does.
func TestLoRAEqualsMergedWeight(t *testing.T) {
	dev, st := device(t)
	c := small()
	const tokens = 7
	for name, targets := range map[string][]string{
		"whole": {"double_blocks.0.img_attn.qkv"},
		"parts": {"transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_v"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSet(t, dev, c, 3, 2, targets...)
			require.NoError(t, s.Write(st, func(p adapter.Param, dst []float32) error {
				rng.New(1, "test", p.Name()).FillNormal(dst, 0)
				return nil
			}))
			m := s.Layers()[0].Module
			buf, err := dev.Alloc(1 << 20)
			require.NoError(t, err)
			defer buf.Free()
			x := &ops.Ctx{Stream: st, Arena: tensor.NewArena(buf, st.Fail), Act: tensor.F32}
			random := func(name string, rows, cols int) tensor.Tensor {
				r := x.NewF32(rows, cols)
				rng.New(2, name).FillNormal(r.Float32s(), 0)
				return r
			}
			w, in, dy := random("w", m.Out, m.In), random("x", tokens, m.In), random("dy", tokens, m.Out)
			merged := x.NewF32(m.Out, m.In)
			x.Run(ops.Copy{Y: merged, X: w})
			for _, b := range s.Blocks() {
				for i := 0; i < len(b.Params); i += 2 {
					l := b.Params[i].Layer
					x.Run(ops.Gemm{C: merged.RowRange(l.Lo, l.Hi), A: b.Params[i+1].Value, B: b.Params[i].Value, Alpha: float32(l.Scale()), Beta: 1})
				}
			}
			run := func(l nn.Linear) (y, dx tensor.Tensor) {
				y, dx = x.NewF32(tokens, m.Out), random("dx", tokens, m.In)
				l.Forward(x, y, in)
				l.Backward(x, dx, dy, in, true)
				return y, dx
			}
			y, dx := run(s.Wrap(m.Name, &nn.Dense{Weight: tensor.Weight{Data: w}}))
			wantY, wantDX := run(&nn.Dense{Weight: tensor.Weight{Data: merged}})
			require.NoError(t, st.Sync())
			require.InDeltaSlice(t, wantY.Float32s(), y.Float32s(), 2e-4)
			require.InDeltaSlice(t, wantDX.Float32s(), dx.Float32s(), 2e-4)
		})
	}
}

// A bfloat16 set holds the nearest of what a float32 one does, and computes what
// that does with these values; its gradients are those, each addition rounded once.
func TestBFloat16(t *testing.T) {
	dev, st := device(t)
	c := small()
	const name, tokens = "double_blocks.0.img_attn.qkv", 7
	half := newSetOf(t, tensor.BF16, dev, c, 3, 2, name)
	full := newSet(t, dev, c, 3, 2, name)
	random := func(p adapter.Param, dst []float32) error {
		rng.New(1, "test", p.Name()).FillNormal(dst, 0)
		return nil
	}
	require.NoError(t, half.Write(st, random))
	require.NoError(t, full.Write(st, func(p adapter.Param, dst []float32) error {
		require.NoError(t, random(p, dst))
		copy(dst, nearest(dst))
		return nil
	}))
	read := map[string][]float32{}
	require.NoError(t, half.Read(st, func(p adapter.Param, src []float32) error {
		read[p.Name()] = slices.Clone(src)
		return nil
	}))
	for _, p := range full.Params() {
		require.Equal(t, p.Value.Float32s(), read[p.Name()])
	}

	m := full.Layers()[0].Module
	buf, err := dev.Alloc(1 << 20)
	require.NoError(t, err)
	defer buf.Free()
	x := &ops.Ctx{Stream: st, Arena: tensor.NewArena(buf, st.Fail), Act: tensor.F32}
	tensorOf := func(name string, rows, cols int) tensor.Tensor {
		r := x.NewF32(rows, cols)
		rng.New(2, name).FillNormal(r.Float32s(), 0)
		return r
	}
	w := tensorOf("w", m.Out, m.In)
	for _, pass := range []string{"first", "second"} {
		in, dy := tensorOf(pass+" x", tokens, m.In), tensorOf(pass+" dy", tokens, m.Out)
		var y, dx [2][]float32
		for i, s := range []*adapter.Set{full, half} {
			l := s.Wrap(name, &nn.Dense{Weight: tensor.Weight{Data: w}})
			out, din := x.NewF32(tokens, m.Out), x.NewF32(tokens, m.In)
			l.Forward(x, out, in)
			l.Backward(x, din, dy, in, false)
			require.NoError(t, st.Sync())
			y[i], dx[i] = out.Float32s(), din.Float32s()
		}
		require.Equal(t, y[0], y[1])
		require.Equal(t, dx[0], dx[1])
		for i, p := range half.Params() {
			grad := full.Params()[i].Grad.Float32s() // starts from what half has
			copy(grad, nearest(grad))
			require.Equal(t, grad, wide(p.Grad), "%s %s", pass, p.Name())
		}
	}
}

// nearest rounds to bfloat16.
func nearest(x []float32) []float32 {
	h, y := make([]uint16, len(x)), make([]float32, len(x))
	dtype.F32ToBF16(h, x)
	dtype.BF16ToF32(y, h)
	return y
}

func TestSetRefusesType(t *testing.T) {
	dev, _ := device(t)
	_, err := adapter.New(dev, 4, nil, tensor.F16)
	require.ErrorContains(t, err, "f16")
}

func TestSetRefusesRankZero(t *testing.T) {
	dev, _ := device(t)
	_, err := adapter.New(dev, 4, adapter.Layers([]adapter.Target{{Module: small().Modules()[0], Lo: 0, Hi: 9}}, 0, 1), tensor.F32)
	require.ErrorContains(t, err, "rank 0")
}
