package optim

import (
	"math"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/ops"
	"longship/gpu/ops/opstest"
	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/dtype"
	"longship/internal/golden"
	"longship/internal/nn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a device with an adapter on it and a raised or lowered flag.
type bench struct {
	t    testing.TB
	dev  gpu.Device
	ctx  *ops.Ctx
	set  *adapter.Set
	flag tensor.Tensor
}

// newBench makes an adapter whose A have 1·in elements and whose B have one
// row: in[i] is the size of the only pair of block i, 0 for no pair.
func newBench(t testing.TB, in ...int) *bench {
	t.Helper()
	return newBenchOf(t, tensor.F32, in...)
}

func newBenchOf(t testing.TB, dt tensor.DType, in ...int) *bench {
	t.Helper()
	dev, err := cpu.New()
	check(t, err)
	st, err := dev.NewStream("compute")
	check(t, err)
	var layers []adapter.Layer
	for i, n := range in {
		if n > 0 {
			m := nn.Module{Name: "m" + strconv.Itoa(i), Block: i, Out: 1, In: n, Parts: []nn.Part{{Hi: 1}}}
			layers = append(layers, adapter.Layer{Target: adapter.Target{Module: m, Hi: 1}, Rank: 1, Alpha: 1})
		}
	}
	set, err := adapter.New(dev, len(in), layers, dt)
	check(t, err)
	flag, err := dev.Alloc(4)
	check(t, err)
	clear(flag.Host())
	t.Cleanup(func() {
		check(t, st.Close())
		check(t, set.Close())
		check(t, flag.Free())
		check(t, dev.Close())
	})
	b := &bench{t: t, dev: dev, set: set, flag: tensor.New(flag, 0, tensor.I32, 1),
		ctx: &ops.Ctx{Stream: st, Act: tensor.F32, Arena: tensor.MeasuringArena()}}
	check(t, set.Write(st, func(adapter.Param, []float32) error { return nil }))
	return b
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bench) sync() {
	b.t.Helper()
	check(b.t, b.ctx.Stream.Sync())
}

func (b *bench) optimizer(cfg Config) *Optimizer {
	b.t.Helper()
	o, err := New(b.dev, b.ctx.Stream, cfg, b.set.Blocks())
	check(b.t, err)
	b.t.Cleanup(func() { check(b.t, o.Close()) })
	b.sync()
	return o
}

// step takes one whole update.
func (b *bench) step(o *Optimizer, lr float64, coef tensor.Tensor) {
	b.t.Helper()
	o.Count(b.ctx, b.flag)
	for i := range b.set.Blocks() {
		o.Update(b.ctx, i, Step{LR: lr}, coef, b.flag)
	}
	b.sync()
}

// a returns the A of block i.
func (b *bench) a(i int) adapter.Param { return b.set.Blocks()[i].Params[0] }

func TestAdamWMatchesReference(t *testing.T) {
	f := golden.Open(t, "golden", "optimizers.safetensors")
	p0, _ := f.F32("small.p0")
	grads, shape := f.F32("small.grads")
	for name, c := range map[string]struct {
		lr  float64
		cfg Config
	}{
		"adamw":    {1e-3, Config{AdamW, 0.9, 0.999, 1e-8, 1e-2, 0}},
		"adamw_hi": {5e-2, Config{AdamW, 0.8, 0.95, 1e-6, 0.3, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			n := shape[1]
			b := newBench(t, 3, n)
			o := b.optimizer(c.cfg)
			p := b.a(1)
			copy(p.Value.Float32s(), p0)
			want, _ := f.F32(name + ".traj")
			for s := range shape[0] {
				copy(p.Grad.Float32s(), grads[s*n:(s+1)*n])
				b.step(o, c.lr, tensor.Tensor{})
				golden.Near(t, "p of step "+strconv.Itoa(s), p.Value.Float32s(), want[s*n:(s+1)*n], 1e-6)
			}
			for key, ref := range map[string]string{"m": ".exp_avg", "v": ".exp_avg_sq"} {
				want, _ := f.F32(name + ref)
				golden.Near(t, key, o.State(p.Name())[key].Float32s(), want, 1e-6)
			}
			for i, v := range b.a(0).Value.Float32s() {
				if v != 0 {
					t.Errorf("parameter without a gradient moved: element %d is %v", i, v)
				}
			}
			if got := tensor.Host[int32](o.Taken())[0]; int(got) != shape[0] {
				t.Errorf("%d updates counted of %d", got, shape[0])
			}
		})
	}
}

// The reference records parameters, codes and maxima after some steps, by step number.
func TestAdamW8bitMatchesReference(t *testing.T) {
	f := golden.Open(t, "golden", "adam8bit.safetensors")
	p0, _ := f.F32("p0")
	grads, shape := f.Items("grads")
	n := shape[0]
	b := newBench(t, n)
	cfg := Config{AdamW8bit, f.Number("b1"), f.Number("b2"), f.Number("eps"), f.Number("wd"), 0}
	o := b.optimizer(cfg)
	p := b.a(0)
	st := o.State(p.Name())
	if n < smallest || !st["m_code"].Valid() {
		t.Fatalf("%d elements are not kept in 8 bits", n)
	}
	before := ops.AdamW8{MCode: st["m_code"], VCode: st["v_code"], MMax: st["m_absmax"], VMax: st["v_absmax"],
		Adam: ops.AdamParams{Beta1: cfg.Beta1, Beta2: cfg.Beta2}}
	copy(p.Value.Float32s(), p0)
	compared := 0
	for s, g := range grads {
		copy(p.Grad.Float32s(), g)
		m, v := opstest.Adam8Moments(before, g)
		b.step(o, f.Number("lr"), tensor.Tensor{})
		at := strconv.Itoa(s)
		if !f.Has("cuda.p" + at) {
			continue
		}
		compared++
		want, _ := f.F32("cuda.p" + at)
		golden.Near(t, "p of step "+at, p.Value.Float32s(), want, 1e-6)
		for _, state := range []struct {
			code, codes, top, tops string
			table                  *ops.Code
			value                  []float64
		}{{"m_code", "c1_", "m_absmax", "a1_", ops.SignedCode(), m}, {"v_code", "c2_", "v_absmax", "a2_", ops.UnsignedCode(), v}} {
			want, _ := f.F32("cuda." + state.tops + at)
			top := st[state.top].Float32s()
			golden.Near(t, state.top+" of step "+at, top, want, 1e-6)
			codes, _ := f.I64("cuda." + state.codes + at)
			opstest.SameCodes(t, state.code+" of step "+at, tensor.Host[byte](st[state.code]), codes, state.table,
				func(i int) float64 { return state.value[i] / float64(top[i/ops.Adam8Block]) })
		}
	}
	if compared == 0 {
		t.Fatal("the reference records no step")
	}
}

func TestSmallTensorsKeepFloatMoments(t *testing.T) {
	b := newBench(t, smallest, smallest-1)
	o := b.optimizer(Config{AdamW8bit, 0.9, 0.999, 1e-8, 0, 0})
	for i, want := range []string{"m_code", "m"} {
		if st := o.State(b.a(i).Name()); !st[want].Valid() {
			t.Errorf("tensor of %d elements has states %v, want %s", b.a(i).Value.Len(), st, want)
		}
	}
}

func TestFlagSuppressesEverything(t *testing.T) {
	for _, name := range []string{AdamW, AdamW8bit} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 5000, 100)
			o := b.optimizer(Config{name, 0.9, 0.999, 1e-8, 0.01, 0})
			e, err := NewEMA(b.dev, 0.5, b.set.Blocks())
			check(t, err)
			defer e.Close()
			e.Start(b.ctx.Stream)
			b.sync()
			for i := range 2 {
				fill(b.a(i).Value, 1)
				fill(b.a(i).Grad, 1)
			}
			tensor.Host[int32](b.flag)[0] = 1
			b.step(o, 0.1, tensor.Tensor{})
			for i := range 2 {
				e.Update(b.ctx, i, b.flag)
			}
			b.sync()
			for i := range 2 {
				if v := b.a(i).Value.Float32s()[0]; v != 1 {
					t.Errorf("block %d moved to %v", i, v)
				}
				if v := e.Average(b.a(i).Name()).Float32s()[0]; v != 0 {
					t.Errorf("average of block %d moved to %v", i, v)
				}
			}
			if n := tensor.Host[int32](o.Taken())[0]; n != 0 {
				t.Errorf("%d updates counted", n)
			}
			tensor.Host[int32](b.flag)[0] = 0
			b.step(o, 0.1, tensor.Tensor{})
			if v := b.a(0).Value.Float32s()[0]; v == 1 {
				t.Error("nothing moves once the flag is lowered")
			}
		})
	}
}

func TestClipMatchesReference(t *testing.T) {
	f := golden.Open(t, "golden", "optimizers.safetensors")
	var grads [][]float32
	var sizes []int
	for i := range f.Under("clip.in") { // numbered from 0
		g, _ := f.F32("clip.in" + strconv.Itoa(i))
		grads = append(grads, g)
		sizes = append(sizes, len(g), 0) // between the blocks one without parameters
	}
	norm, _ := f.F32("clip.norm")
	b := newBench(t, sizes...)
	for i, g := range grads {
		copy(b.a(2*i).Grad.Float32s(), g)
	}
	c, err := NewClip(b.dev, 1, false, b.set.Blocks())
	check(t, err)
	defer c.Close()
	for range 2 { // a second step starts anew
		c.Reset(b.ctx)
		for i := range b.set.Blocks() {
			c.Measure(b.ctx, i)
		}
	}
	coef := c.Limit(b.ctx, 0, b.flag)
	b.sync()
	golden.Near(t, "norm", []float32{float32(Total(c.Norms().Float32s()))}, norm, 1e-6)
	for i, g := range grads {
		want, _ := f.F32("clip.out" + strconv.Itoa(i))
		got := make([]float32, len(g))
		for k := range g {
			got[k] = g[k] * coef.Float32s()[0]
		}
		golden.Near(t, "clipped gradient", got, want, 1e-6)
	}
}

func TestClipOfEachBlock(t *testing.T) {
	b := newBench(t, 4, 0, 4)
	fill(b.a(0).Grad, 3)   // norm 6
	fill(b.a(2).Grad, 0.1) // norm 0.2
	c, err := NewClip(b.dev, 2, true, b.set.Blocks())
	check(t, err)
	defer c.Close()
	c.Reset(b.ctx)
	var coefs []tensor.Tensor
	for i := range b.set.Blocks() {
		c.Measure(b.ctx, i)
		coefs = append(coefs, c.Limit(b.ctx, i, b.flag))
	}
	b.sync()
	if a, z := coefs[0].Float32s()[0], coefs[2].Float32s()[0]; math.Abs(float64(a)-1.0/3) > 1e-6 || z != 1 {
		t.Errorf("factors %v and %v, want 1/3 and 1", a, z)
	}
	if got, want := Total(c.Norms().Float32s()), math.Sqrt(36.04); math.Abs(got-want) > 1e-5 {
		t.Errorf("norm of all %v, want %v", got, want)
	}
}

func TestClipRaisesFlag(t *testing.T) {
	for _, limit := range []float64{0, 1} {
		b := newBench(t, 4)
		b.a(0).Grad.Float32s()[2] = float32(math.NaN())
		c, err := NewClip(b.dev, limit, true, b.set.Blocks())
		check(t, err)
		c.Reset(b.ctx)
		c.Measure(b.ctx, 0)
		c.Limit(b.ctx, 0, b.flag)
		b.sync()
		if tensor.Host[int32](b.flag)[0] == 0 {
			t.Errorf("limit %v: a gradient that is no number raises no flag", limit)
		}
		check(t, c.Close())
	}
}

func TestNoLimitLeavesGradients(t *testing.T) {
	b := newBench(t, 4)
	fill(b.a(0).Grad, 1e6)
	c, err := NewClip(b.dev, 0, true, b.set.Blocks())
	check(t, err)
	defer c.Close()
	c.Reset(b.ctx)
	c.Measure(b.ctx, 0)
	coef := c.Limit(b.ctx, 0, b.flag)
	b.sync()
	if coef.Float32s()[0] != 1 {
		t.Errorf("factor %v without a limit", coef.Float32s()[0])
	}
}

func TestEMAFollows(t *testing.T) {
	b := newBench(t, 70, 0, 3)
	e, err := NewEMA(b.dev, 0.9, b.set.Blocks())
	check(t, err)
	defer e.Close()
	fill(b.a(2).Value, 2)
	e.Start(b.ctx.Stream)
	b.sync()
	fill(b.a(2).Value, 3)
	for i := range b.set.Blocks() {
		e.Update(b.ctx, i, b.flag)
	}
	b.sync()
	golden.Near(t, "average", e.Average(b.a(2).Name()).Float32s(), []float32{2.1, 2.1, 2.1}, 1e-6)
	if v := e.Average(b.a(0).Name()).Float32s()[69]; v != 0 {
		t.Errorf("average of another block is %v", v)
	}
}

// Moments and averages of a bfloat16 adapter are float32 and each parameter's
// own; the average follows what the parameters really are.
func TestStatesOfBFloat16(t *testing.T) {
	for _, name := range []string{AdamW, AdamW8bit} {
		t.Run(name, func(t *testing.T) {
			b := newBenchOf(t, tensor.BF16, 70, 0, 300)
			o := b.optimizer(Config{name, 0.9, 0.999, 1e-8, 0, 7})
			e, err := NewEMA(b.dev, 0, b.set.Blocks()) // the parameters themselves
			check(t, err)
			defer e.Close()
			e.Start(b.ctx.Stream)
			for i, p := range b.set.Params() {
				fillHalf(p.Value, 1)
				fillHalf(p.Grad, float32(i+1))
			}
			b.step(o, 1e-3, tensor.Tensor{})
			for i := range b.set.Blocks() {
				e.Update(b.ctx, i, b.flag)
			}
			b.sync()
			for i, p := range b.set.Params() {
				st := o.State(p.Name())
				for k := range p.Value.Len() {
					golden.Near(t, "m of "+p.Name(), st["m"].Float32s()[k:k+1], []float32{0.1 * float32(i+1)}, 1e-6)
					golden.Near(t, "v of "+p.Name(), st["v"].Float32s()[k:k+1], []float32{0.001 * float32((i+1)*(i+1))}, 1e-5)
				}
				value := make([]float32, p.Value.Len())
				dtype.BF16ToF32(value, tensor.Host[uint16](p.Value))
				golden.Near(t, "average of "+p.Name(), e.Average(p.Name()).Float32s(), value, 0)
			}
		})
	}
}

// The random bits of rounding are those of the seed, the step and the place.
func TestRoundingOfEachStepIsItsOwn(t *testing.T) {
	for _, name := range []string{AdamW, AdamW8bit} {
		t.Run(name, func(t *testing.T) {
			update := func(seed uint64, step int) [2]string {
				b := newBenchOf(t, tensor.BF16, 5000, 5000)
				o := b.optimizer(Config{name, 0.9, 0.999, 1e-8, 0, seed})
				for _, p := range b.set.Params() {
					fillHalf(p.Value, 1)
					fillHalf(p.Grad, 1)
				}
				o.Count(b.ctx, b.flag)
				for i := range b.set.Blocks() {
					o.Update(b.ctx, i, Step{N: step, LR: 1e-3}, tensor.Tensor{}, b.flag)
				}
				b.sync()
				return [2]string{string(b.a(0).Value.Region().Bytes()), string(b.a(1).Value.Region().Bytes())}
			}
			first := update(1, 1)
			if again := update(1, 1); again != first {
				t.Error("the same step rounds differently when it is taken again")
			}
			if first[0] == first[1] || first == update(1, 2) || first == update(2, 1) {
				t.Error("another block, step or seed rounds the same")
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, name := range []string{AdamW, AdamW8bit} {
		b.Run(name, func(b *testing.B) {
			const n = 1 << 20
			x := newBench(b, n)
			o := x.optimizer(Config{name, 0.9, 0.999, 1e-8, 0.01, 0})
			fill(x.a(0).Grad, 0.01)
			b.SetBytes(n * 4)
			for b.Loop() {
				x.step(o, 1e-4, tensor.Tensor{})
			}
		})
	}
}

func fillHalf(t tensor.Tensor, v float32) {
	for i := range t.Len() {
		tensor.Host[uint16](t)[i] = dtype.BF16(v)
	}
}

func fill(t tensor.Tensor, v float32) {
	for i := range t.Float32s() {
		t.Float32s()[i] = v
	}
}
