package flux2_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/golden"
	"longship/internal/nn"
	"longship/internal/rng"
	"longship/internal/weights"
)

// The tolerances: of values against the reference's largest
// magnitude, and of gradients of adapters relative in L2.
const (
	valueTol = 1e-4
	gradTol  = 1e-3
)

// host is the CPU device with a compute stream and memory for tensors.
type host struct {
	t      testing.TB
	dev    gpu.Device
	stream gpu.Stream
	bufs   []gpu.Buffer
}

func newHost(t testing.TB) *host {
	dev, err := cpu.New()
	require.NoError(t, err)
	st, err := dev.NewStream("compute")
	require.NoError(t, err)
	h := &host{t: t, dev: dev, stream: st}
	t.Cleanup(func() {
		st.Close()
		for _, b := range h.bufs {
			b.Free()
		}
		require.NoError(t, dev.Close())
	})
	return h
}

func (h *host) alloc(bytes int64) gpu.Buffer {
	b, err := h.dev.Alloc(bytes)
	require.NoError(h.t, err)
	h.bufs = append(h.bufs, b)
	return b
}

// tensor returns a float32 tensor of the data; zeros where there is none.
func (h *host) tensor(data []float32, shape ...int) tensor.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	t := tensor.New(h.alloc(int64(4*n)), 0, tensor.F32, shape...)
	clear(t.Float32s())
	copy(t.Float32s(), data)
	return t
}

// ctx returns a Ctx with an arena of its own.
func (h *host) ctx(bytes int64) *ops.Ctx {
	return &ops.Ctx{Stream: h.stream, Arena: tensor.NewArena(h.alloc(bytes), h.stream.Fail), Act: tensor.F32}
}

// elements is where the fixture takes a weight's elements from.
type elements func(name string, shape []int) []float32

// weightSet makes the weights of a model, Linears inside the blocks in the given type.
func weightSet(c flux2.Config, inBlocks tensor.DType, from elements) *memory.WeightSet {
	byUnit := map[string]flux2.Unit{}
	unit := func(u flux2.Unit) memory.Unit {
		byUnit[u.Name] = u
		out := memory.Unit{Name: u.Name, Block: u.Block}
		take := func(n int64) int64 {
			off := out.Bytes
			out.Bytes += (n + tensor.Align - 1) / tensor.Align * tensor.Align
			return off
		}
		for _, t := range u.Tensors {
			dt, sc := tensor.F32, int64(-1)
			if !t.Norm() && u.Block >= 0 {
				dt = inBlocks
			}
			off := take(t.Params() * int64(dt.Size()))
			if dt.Size() == 1 {
				sc = take(4 * int64(t.Shape[0]))
			}
			out.Entries = append(out.Entries, memory.Entry{Name: t.Name, DType: dt, Shape: t.Shape, Off: off, Scale: sc})
		}
		return out
	}
	set := &memory.WeightSet{Config: c.JSON(), Outer: unit(c.Outer())}
	for _, u := range c.Units() {
		set.Units = append(set.Units, unit(u))
	}
	set.Fill = func(_ context.Context, u memory.Unit, dst []byte) error {
		clear(dst)
		for _, e := range u.Entries {
			fill(dst, e, from(e.Name, e.Shape))
		}
		return nil
	}
	return set
}

// fill writes a tensor's elements in the entry's type.
func fill(unit []byte, e memory.Entry, data []float32) {
	at := unit[e.Off : e.Off+int64(len(data)*e.DType.Size())]
	switch e.DType {
	case tensor.F32:
		copy(dtype.View[float32](at), data)
	case tensor.BF16:
		dtype.F32ToBF16(dtype.View[uint16](at), data)
	case tensor.E5M2:
		scales := dtype.View[float32](unit[e.Scale : e.Scale+int64(4*e.Shape[0])])
		cols := e.Shape[1]
		for i := range scales {
			row := data[i*cols : (i+1)*cols]
			var amax float64
			for _, v := range row {
				amax = math.Max(amax, math.Abs(float64(v)))
			}
			scales[i] = float32(amax / 57344)
			scaled := make([]float32, cols)
			for j, v := range row {
				scaled[j] = v / scales[i]
			}
			dtype.F32ToE5M2Sat(at[i*cols:(i+1)*cols], scaled)
		}
	}
}

// files gives the weights of a model folder.
func files(t testing.TB, dir string) (flux2.Config, elements) {
	m, err := weights.OpenTransformer(golden.Path(dir))
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m.Config, func(name string, _ []int) []float32 {
		data, err := m.Weight(name).Float32()
		require.NoError(t, err)
		return data
	}
}

// random gives weights whose layers neither grow nor shrink what passes.
func random(name string, shape []int) []float32 {
	n := 1
	for _, d := range shape {
		n *= d
	}
	data := make([]float32, n)
	g := rng.New(7, "test/weights", name)
	g.FillNormal(data, 0)
	for i := range data {
		if len(shape) == 1 {
			data[i] = 1 + 0.1*data[i]
		} else {
			data[i] /= float32(math.Sqrt(float64(shape[1])))
		}
	}
	return data
}

// model builds a resident model on the host.
func (h *host) model(c flux2.Config, set *memory.WeightSet, ad nn.Adapter, shapes ...flux2.Shape) *flux2.Model {
	src, err := memory.NewResident(context.Background(), h.dev, set)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { require.NoError(h.t, src.Close()) })
	return h.modelOn(c, src, ad, shapes...)
}

func (h *host) modelOn(c flux2.Config, src memory.Source, ad nn.Adapter, shapes ...flux2.Shape) *flux2.Model {
	m, err := flux2.New(c, src, ad)
	require.NoError(h.t, err)
	require.NoError(h.t, m.Prepare(h.dev, h.stream, shapes...))
	h.t.Cleanup(func() { require.NoError(h.t, m.Close()) })
	return m
}

// dry runs a training pass on a device without memory and returns the bytes of
// workspace it takes and the kernels it queues.
func (h *host) dry(c flux2.Config, weights memory.Source, ad nn.Adapter, s flux2.Shape, opt flux2.TrainOptions) (int64, map[string]gpu.Count) {
	dev := gpu.NewDiscard()
	st, err := dev.NewStream("dry run")
	require.NoError(h.t, err)
	m, err := flux2.New(c, weights, ad)
	require.NoError(h.t, err)
	defer m.Close()
	require.NoError(h.t, m.Prepare(dev, st, s))
	x := &ops.Ctx{Stream: st, Arena: tensor.MeasuringArena(), Act: tensor.F32}
	image, refs := s.Tokens()
	in := flux2.Input{
		Shape:    s,
		Tokens:   tensor.New(nil, 0, tensor.F32, s.B, image, c.InChannels),
		Text:     tensor.New(nil, 0, tensor.F32, s.B, s.L, c.TextDim),
		Timestep: tensor.New(nil, 0, tensor.F32, s.B),
		Guidance: tensor.New(nil, 0, tensor.F32, s.B),
	}
	if refs > 0 {
		in.Refs = tensor.New(nil, 0, tensor.F32, s.B, refs, c.InChannels)
	}
	require.NoError(h.t, m.Train(x, in, func(*ops.Ctx, tensor.Tensor, tensor.Tensor) {}, opt))
	require.NoError(h.t, st.Close())
	return x.Arena.Peak(), dev.Counts()
}
