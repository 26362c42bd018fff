package ops_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/golden"
)

// bench is a device with tensors made from golden files.
type bench struct {
	t      *testing.T
	stream gpu.Stream
	dev    gpu.Device
}

func newBench(t *testing.T) *bench {
	dev := device(t)
	s, err := dev.NewStream("golden")
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return &bench{t: t, stream: s, dev: dev}
}

func (b *bench) alloc(dt tensor.DType, shape ...int) tensor.Tensor {
	n := dt.Size()
	for _, d := range shape {
		n *= d
	}
	buf, err := b.dev.Alloc(int64(n))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { buf.Free() })
	for i := range buf.Host() {
		buf.Host()[i] = 0xff
	}
	return tensor.New(buf, 0, dt, shape...)
}

// empty is a float32 tensor of NaN.
func (b *bench) empty(shape ...int) tensor.Tensor { return b.alloc(tensor.F32, shape...) }

// of is a tensor with the given elements.
func (b *bench) of(data []float32, shape ...int) tensor.Tensor {
	t := b.empty(shape...)
	copy(t.Float32s(), data)
	return t
}

// load is a tensor from a file, in the shape it has there.
func (b *bench) load(f *golden.File, name string) tensor.Tensor {
	data, shape := f.F32(name)
	return b.of(data, shape...)
}

func (b *bench) run(ks ...gpu.Kernel) {
	b.t.Helper()
	for _, k := range ks {
		b.stream.Launch(k)
	}
	require.NoError(b.t, b.stream.Sync())
}

func (b *bench) same(f *golden.File, name string, got tensor.Tensor, tol float64) {
	b.t.Helper()
	want, _ := f.F32(name)
	golden.Near(b.t, name, got.Float32s(), want, tol)
}

const refTol = 2e-6

func TestGoldenNorms(t *testing.T) {
	b, f := newBench(t), golden.Open(t, "golden", "primitives.safetensors")

	x, dy := b.load(f, "rms.x"), b.load(f, "rms.gy")
	w := b.load(f, "rms.w")
	y, dx, dw := b.empty(x.Shape...), b.empty(x.Shape...), b.empty(w.Shape...)
	rstd := b.empty(x.Rows(), x.Cols()/w.Len())
	b.run(ops.RMSNorm{Y: y, X: x, W: w, RStd: rstd, Eps: 1e-6}, ops.Zero{Y: dw},
		ops.RMSNormBackward{DX: dx, DY: dy, X: x, W: w, RStd: rstd, DW: dw})
	b.same(f, "rms.y", y, refTol)
	b.same(f, "rms.gx", dx, refTol)
	b.same(f, "rms.gw", dw, refTol)

	x, dy = b.load(f, "ln.x"), b.load(f, "ln.gy")
	y, dx = b.empty(x.Shape...), b.empty(x.Shape...)
	mean, rstd := b.empty(x.Rows()), b.empty(x.Rows())
	b.run(ops.LayerNorm{Y: y, X: x, Mean: mean, RStd: rstd, Eps: 1e-6},
		ops.LayerNormBackward{DX: dx, DY: dy, X: x, Mean: mean, RStd: rstd})
	b.same(f, "ln.y", y, refTol)
	b.same(f, "ln.gx", dx, refTol)

	x, w = b.load(f, "gn.x"), b.load(f, "gn.w")
	y = b.empty(x.Shape...)
	b.run(ops.GroupNorm{Y: y, X: x, W: w, B: b.load(f, "gn.b"), Groups: 4, Eps: 1e-6})
	b.same(f, "gn.y", y, refTol)
}

func TestGoldenRoPE(t *testing.T) {
	b, f := newBench(t), golden.Open(t, "golden", "primitives.safetensors")
	for _, name := range withSuffix(f, ".cos") {
		x, shape := f.F32(name + ".x") // [B, S, H, hd]
		rows, cols := shape[0]*shape[1], shape[2]*shape[3]
		cos, sin := b.load(f, name+".cos"), b.load(f, name+".sin")
		y, dx := b.empty(rows, cols), b.empty(rows, cols)
		dy, _ := f.F32(name + ".gy")
		b.run(ops.RoPE{Y: y, X: b.of(x, rows, cols), Cos: cos, Sin: sin},
			ops.RoPE{Y: dx, X: b.of(dy, rows, cols), Cos: cos, Sin: sin, Inverse: true})
		b.same(f, name+".y", y, refTol)
		b.same(f, name+".gx", dx, refTol)
	}
}

// withSuffix returns the names in f that end so, without the suffix.
func withSuffix(f *golden.File, suffix string) []string {
	var names []string
	for _, n := range f.Names() {
		if base, ok := strings.CutSuffix(n, suffix); ok {
			names = append(names, base)
		}
	}
	slices.Sort(names)
	return names
}

func TestGoldenSwiGLU(t *testing.T) {
	b, f := newBench(t), golden.Open(t, "golden", "primitives.safetensors")
	x, dy := b.load(f, "swiglu.x"), b.load(f, "swiglu.gy")
	y, dx, h := b.empty(dy.Shape...), b.empty(x.Shape...), x.Cols()/2
	gate, up := x.ColRange(0, h), x.ColRange(h, 2*h)
	b.run(ops.SwiGLU{Y: y, Gate: gate, Up: up},
		ops.SwiGLUBackward{DGate: dx.ColRange(0, h), DUp: dx.ColRange(h, 2*h), DY: dy, Gate: gate, Up: up})
	b.same(f, "swiglu.y", y, refTol)
	b.same(f, "swiglu.gx", dx, refTol)
}

// byToken turns [B,H,S,hd] into rows of tokens [B·S, H·hd], or back.
func byToken(x []float32, s []int, back bool) []float32 {
	y := make([]float32, len(x))
	b, h, n, hd := s[0], s[1], s[2], s[3]
	for i := range b * h * n {
		head, token := i, (i/(h*n)*n+i%n)*h+i/n%h
		if back {
			head, token = token, head
		}
		copy(y[token*hd:(token+1)*hd], x[head*hd:(head+1)*hd])
	}
	return y
}

func TestGoldenAttention(t *testing.T) {
	b, f := newBench(t), golden.Open(t, "golden", "primitives.safetensors")
	for _, name := range withSuffix(f, ".q") {
		_, s := f.F32(name + ".q") // [B, H, S, hd]
		rows, cols := s[0]*s[2], s[1]*s[3]
		load := func(part string) tensor.Tensor {
			data, _ := f.F32(name + "." + part)
			return b.of(byToken(data, s, false), rows, cols)
		}
		same := func(part string, got tensor.Tensor) {
			want, _ := f.F32(name + "." + part)
			golden.Near(t, name+"."+part, byToken(got.Float32s(), s, true), want, refTol)
		}
		fwd := ops.Attention{O: b.empty(rows, cols), Q: load("q"), K: load("k"), V: load("v"), LSE: b.empty(s[0], s[1], s[2]), Batch: s[0], Heads: s[1]}
		if f.Has(name + ".mask") {
			fwd.Causal, fwd.Keys = true, b.keyRanges(f, name+".mask", s[0])
		}
		b.run(fwd)
		same("o", fwd.O)
		if !f.Has(name + ".go") {
			continue
		}
		bwd := ops.AttentionBackward{DQ: b.empty(rows, cols), DK: b.empty(rows, cols), DV: b.empty(rows, cols), DO: load("go"),
			O: fwd.O, Q: fwd.Q, K: fwd.K, V: fwd.V, LSE: fwd.LSE, Delta: b.empty(s[0], s[1], s[2]), Batch: s[0], Heads: s[1]}
		b.run(bwd)
		same("gq", bwd.DQ)
		same("gk", bwd.DK)
		same("gv", bwd.DV)
	}
}

// keyRanges reads a mask [S,S] that is causal but for keys that nobody sees.
func (b *bench) keyRanges(f *golden.File, name string, batch int) tensor.Tensor {
	mask, s := f.I64(name)
	last := mask[len(mask)-s[1]:] // the last query sees every valid key
	from := slices.Index(last, 1)
	for i, seen := range mask {
		query, key := i/s[1], i%s[1]
		require.Equal(b.t, key >= from && key <= query, seen != 0, "%s[%d,%d]", name, query, key)
	}
	keys := b.alloc(tensor.I32, batch, 2)
	for i := range batch {
		copy(tensor.Host[int32](keys)[2*i:], []int32{int32(from), int32(s[1])})
	}
	return keys
}

func TestGoldenImages(t *testing.T) {
	b, f := newBench(t), golden.Open(t, "golden", "primitives.safetensors")
	x, w, bias := b.load(f, "conv.x"), b.load(f, "conv.w"), b.load(f, "conv.b")
	out := func(name string) tensor.Tensor { return b.empty(f.Shape(name)...) }

	pad, down, up := out("conv.pad1"), out("conv.down_asym"), out("conv.nearest2x")
	b.run(ops.Conv2D{Y: pad, X: x, W: w, Bias: bias, Stride: 1, Pad: 1, PadEnd: 1},
		ops.Conv2D{Y: down, X: x, W: w, Bias: bias, Stride: 2, PadEnd: 1},
		ops.Upsample2x{Y: up, X: x})
	b.same(f, "conv.pad1", pad, refTol)
	b.same(f, "conv.down_asym", down, refTol)
	b.same(f, "conv.nearest2x", up, 0)

	z, folded, back := b.load(f, "patchify.x"), out("patchify.y"), out("patchify.back")
	packed := out("pack.y") // [B, h·w, C]
	unpacked := out("unpack.y")
	s := folded.Shape
	b.run(ops.Patchify{Y: folded, X: z}, ops.Patchify{Y: back, X: folded, Inverse: true},
		ops.Transpose{Y: packed, X: folded.View(s[0]*s[1], s[2]*s[3]), Batch: s[0]},
		ops.Transpose{Y: unpacked.View(s[0]*s[1], s[2]*s[3]), X: packed, Batch: s[0]})
	b.same(f, "patchify.y", folded, 0)
	b.same(f, "patchify.back", back, 0)
	b.same(f, "pack.y", packed, 0)
	b.same(f, "unpack.y", unpacked, 0)
}

// The reference's exp is a vector library's, which rounds a few frequencies to
// the neighbour of the nearest float32; correctly rounded ones are used here. So
// all but a few columns must agree to 1e-6, and those few to one unit in the
// last place of their frequency, which a time of t turns into t·f·2^-23 of phase.
func TestGoldenSinusoid(t *testing.T) {
	b, f := newBench(t), golden.Open(t, "golden", "primitives.safetensors")
	times, _ := f.F32("timestep_embedding.t")
	want, s := f.F32("timestep_embedding.out")
	y := b.empty(s...)
	b.run(ops.Sinusoid{Y: y, T: b.of(times, len(times))})
	got, half := y.Float32s(), s[1]/2
	rounded := map[int]bool{}
	for i, w := range want {
		column := i % s[1] % half
		phase := float64(times[i/s[1]]) * math.Exp(-math.Log(10000)*float64(column)/float64(half))
		diff := math.Abs(float64(got[i] - w))
		require.LessOrEqual(t, diff, 1e-6+phase*0x1p-23, "row %d, column %d", i/s[1], i%s[1])
		if diff > 1e-6 {
			rounded[column] = true
		}
	}
	require.LessOrEqual(t, len(rounded), half/16, "frequencies that differ: %v", rounded)
}

func TestGoldenConversions(t *testing.T) {
	b, f := newBench(t), golden.Open(t, "golden", "dtypes.safetensors")
	x := b.load(f, "enc.x")
	for name, dt := range map[string]tensor.DType{"enc.bfloat16": tensor.BF16, "enc.float16": tensor.F16,
		"enc_sat.float8_e5m2": tensor.E5M2, "enc_sat.float8_e4m3fn": tensor.E4M3} {
		y := b.alloc(dt, x.Len())
		b.run(ops.Cast{Y: y, X: x})
		got, want := y.Raw(), f.Raw(name)
		back, reference := b.empty(x.Len()), b.empty(x.Len())
		if !slices.Equal(got, want) { // NaN may have other bits
			other := b.alloc(dt, x.Len())
			copy(other.Raw(), want)
			b.run(ops.Cast{Y: back, X: y}, ops.Cast{Y: reference, X: other})
			for i, w := range reference.Float32s() {
				g := back.Float32s()[i]
				require.True(t, g == w || g != g && w != w, "%s[%d] of %g is %g, want %g", name, i, x.Float32s()[i], g, w)
			}
		}
	}

	q := b.alloc(tensor.E4M3, f.Shape("fp8.q")...)
	copy(q.Raw(), f.Raw("fp8.q"))
	scale, _ := f.F32("fp8.scale")
	rows, y := b.empty(q.Rows()), b.empty(q.Shape...)
	for i := range rows.Float32s() {
		rows.Float32s()[i] = scale[0]
	}
	b.run(ops.Expand{Y: y, W: tensor.Weight{Data: q, Scale: rows}})
	b.same(f, "fp8.deq", y, 0)
}

func (b *bench) counter(n int32) tensor.Tensor {
	t := b.alloc(tensor.I32, 1)
	tensor.Host[int32](t)[0] = n
	return t
}

func TestGoldenAdamW(t *testing.T) {
	b, f := newBench(t), golden.Open(t, "golden", "optimizers.safetensors")
	grads, s := f.F32("small.grads")
	for name, adam := range map[string]ops.AdamParams{
		"adamw":    {LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 1e-2},
		"adamw_hi": {LR: 5e-2, Beta1: 0.8, Beta2: 0.95, Eps: 1e-6, WeightDecay: 0.3},
	} {
		t.Run(name, func(t *testing.T) {
			p, m, v := b.load(f, "small.p0"), b.empty(s[1]), b.empty(s[1])
			adam.Step = b.counter(0)
			b.run(ops.Zero{Y: m}, ops.Zero{Y: v})
			want, _ := f.F32(name + ".traj")
			for i := range s[0] {
				g := b.of(grads[i*s[1]:(i+1)*s[1]], s[1])
				b.run(ops.CountStep{Step: adam.Step}, ops.AdamW{P: p, G: g, M: m, V: v, Adam: adam})
				golden.Near(t, fmt.Sprintf("%s.traj, step %d", name, i), p.Float32s(), want[i*s[1]:(i+1)*s[1]], 1e-6)
			}
			b.same(f, name+".exp_avg", m, 1e-6)
			b.same(f, name+".exp_avg_sq", v, 1e-6)
		})
	}
}

func TestGoldenClip(t *testing.T) {
	b, f := newBench(t), golden.Open(t, "golden", "optimizers.safetensors")
	sum, norm, coef := b.alloc(tensor.F64, 1), b.empty(1), b.empty(1)
	b.run(ops.Zero{Y: sum})
	var grads []tensor.Tensor
	for i := 0; f.Has(fmt.Sprintf("clip.in%d", i)); i++ {
		grads = append(grads, b.load(f, fmt.Sprintf("clip.in%d", i)))
		b.run(ops.SumSquares{Sum: sum, X: grads[i]})
	}
	require.NotEmpty(t, grads)
	b.run(ops.ClipNorm{Coef: coef, Norm: norm, Sum: sum, Max: 1})
	b.same(f, "clip.norm", norm, 1e-6)
	for i, g := range grads {
		b.run(ops.Scale{Y: g, X: g, Alpha: 1, By: coef})
		b.same(f, fmt.Sprintf("clip.out%d", i), g, 1e-6)
	}
}
