package flux2_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/device"
	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/golden"
)

// The tolerances of bfloat16 activations, relative in L2 to the reference in
// float32.
const (
	cardValueTol = 1e-2
	cardGradTol  = 3e-2
)

// card is an NVIDIA card with a compute stream.
type card struct {
	t      testing.TB
	dev    gpu.Device
	stream gpu.Stream
}

// newCard opens the first card. Where there is none the test is skipped, and
// fails under LONGSHIP_REQUIRE_GPU=1.
func newCard(t testing.TB) *card {
	dev, err := device.Choose("cuda:0", nil)
	if err != nil {
		if os.Getenv("LONGSHIP_REQUIRE_GPU") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	st, err := dev.NewStream("compute")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, st.Close())
		require.NoError(t, dev.Close())
	})
	return &card{t, dev, st}
}

func (c *card) alloc(bytes int64) gpu.Buffer {
	b, err := c.dev.Alloc(bytes)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { b.Free() })
	return b
}

// tensor returns a float32 tensor of the data; the zero Tensor where there is none.
func (c *card) tensor(data []float32, shape ...int) tensor.Tensor {
	if data == nil {
		return tensor.Tensor{}
	}
	t := tensor.New(c.alloc(int64(4*len(data))), 0, tensor.F32, shape...)
	c.upload(t, data)
	return t
}

func (c *card) upload(t tensor.Tensor, data []float32) {
	host, err := c.dev.AllocHost(t.Bytes())
	require.NoError(c.t, err)
	copy(dtype.View[float32](host.Host()), data)
	c.stream.Copy(t.Region(), gpu.Region{Buf: host, Len: t.Bytes()})
	require.NoError(c.t, c.stream.Sync())
	require.NoError(c.t, host.Free())
}

// read returns a tensor's elements.
func (c *card) read(t tensor.Tensor) []float32 {
	host, err := c.dev.AllocHost(t.Bytes())
	require.NoError(c.t, err)
	c.stream.Copy(gpu.Region{Buf: host, Len: t.Bytes()}, t.Region())
	require.NoError(c.t, c.stream.Sync())
	out := make([]float32, t.Len())
	if t.DType == tensor.BF16 {
		dtype.BF16ToF32(out, dtype.View[uint16](host.Host()))
	} else {
		copy(out, dtype.View[float32](host.Host()))
	}
	require.NoError(c.t, host.Free())
	return out
}

// ones are pairs over all Linears with A = 1 and B = 0: the gradient of B is
// that of the weight.
func (c *card) ones(cfg flux2.Config, dt tensor.DType) *adapter.Set {
	var layers []adapter.Layer
	for _, m := range cfg.Modules() {
		layers = append(layers, adapter.Layer{Target: adapter.Target{Module: m, Hi: m.Out}, Rank: m.In, Alpha: float64(m.In)})
	}
	set, err := adapter.New(c.dev, cfg.Blocks(), layers, dt)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, set.Close()) })
	require.NoError(c.t, set.Write(c.stream, func(p adapter.Param, dst []float32) error {
		if p.Part == adapter.PartA {
			for i := range p.Layer.Rank {
				dst[i*p.Layer.Rank+i] = 1
			}
		}
		return nil
	}))
	return set
}

// The whole model on a card, in bfloat16, against the reference in float32:
// output, gradients of the inputs, and of every weight of the blocks, with an
// adapter of either type. What is kept changes no bit of them.
func TestTransformerGoldenOnACard(t *testing.T) {
	for _, kind := range []string{"hd128", "dev", "klein"} {
		for _, dt := range []tensor.DType{tensor.F32, tensor.BF16} {
			t.Run(kind+"/"+dt.String(), func(t *testing.T) { goldenOnACard(t, kind, dt) })
		}
	}
}

func goldenOnACard(t *testing.T, kind string, dt tensor.DType) {
	d := newCard(t)
	f := golden.Open(t, "golden", "transformer_"+kind+".safetensors")
	c, from := files(t, "tiny-"+kind)
	src, err := memory.NewResident(t.Context(), d.dev, weightSet(c, tensor.BF16, from))
	require.NoError(t, err)
	defer func() { require.NoError(t, src.Close()) }()
	set := d.ones(c, dt)
	m, err := flux2.New(c, src, set)
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Close()) }()
	shape := shapeOf(t, f, "", false)
	require.NoError(t, m.Prepare(d.dev, d.stream, shape))

	load := func(name string) tensor.Tensor {
		if !f.Has(name) {
			return tensor.Tensor{}
		}
		data, dims := f.F32(name)
		return d.tensor(data, dims...)
	}
	in := flux2.Input{Shape: shape, Tokens: load("hidden_states"), Text: load("txt"), Timestep: load("timestep"), Guidance: load("guidance")}
	up, upShape := f.F32("grad_output")
	upstream := d.tensor(up, upShape...)
	pred := tensor.New(d.alloc(int64(2*len(up))), 0, tensor.BF16, upShape...)
	_, tokens := f.F32("grad.hidden_states")
	_, text := f.F32("grad.txt")
	like := func(shape []int) tensor.Tensor {
		x := tensor.New(nil, 0, tensor.BF16, shape...)
		return tensor.New(d.alloc(x.Bytes()), 0, tensor.BF16, shape...)
	}
	grads := flux2.InputGrads{Tokens: like(tokens), Text: like(text)}
	ctx := &ops.Ctx{Stream: d.stream, Arena: tensor.NewArena(d.alloc(256<<20), d.stream.Fail), Act: tensor.BF16}
	// pass returns all that a training pass leaves.
	pass := func(keep flux2.Keep) (all [][]float32) {
		for _, b := range set.Blocks() {
			d.stream.Launch(ops.Zero{Y: b.Grads})
		}
		require.NoError(t, m.Train(ctx, in, func(c *ops.Ctx, p, dpred tensor.Tensor) {
			c.Run(ops.Copy{Y: pred, X: p}, ops.Cast{Y: dpred, X: upstream})
		}, flux2.TrainOptions{Keep: keep, Inputs: grads}))
		for _, x := range []tensor.Tensor{pred, grads.Tokens, grads.Text} {
			all = append(all, d.read(x))
		}
		for _, p := range set.Params() {
			all = append(all, d.read(p.Grad))
		}
		return all
	}
	all := pass(flux2.KeepInput)
	for name, keep := range keeps {
		require.True(t, slices.EqualFunc(all, pass(keep), slices.Equal), "with %s kept the bits differ", name)
	}

	near := func(name string, got []float32, tol float64) {
		want, _ := f.F32(name)
		golden.NearL2(t, name, got, want, tol)
	}
	near("output", d.read(pred), cardValueTol)
	near("grad.hidden_states", d.read(grads.Tokens), cardGradTol)
	near("grad.txt", d.read(grads.Text), cardGradTol)
	for _, p := range set.Params() {
		if p.Part == adapter.PartA {
			continue
		}
		for _, part := range p.Layer.Module.Parts {
			name := "grad.param." + part.Name + ".weight"
			if f.Has(name) {
				near(name, d.read(p.Grad.RowRange(part.Lo, part.Hi)), cardGradTol)
			}
		}
	}
}
