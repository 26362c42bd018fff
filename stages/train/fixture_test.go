package train

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/memory"
	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/golden"
	"longship/internal/rng"
	"longship/internal/weights"
	"longship/stages/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const f32 = tensor.F32

// source makes the weights that a trainer reads, on its device.
type source struct {
	set  *memory.WeightSet
	open func(dev gpu.Device, compute gpu.Stream) (src memory.Source, stop func() error, err error)
}

// testSource is the source of one trainer.
type testSource struct {
	source
	dev  gpu.Device
	stop func() error
}

func (s *testSource) Device() gpu.Device    { return s.dev }
func (s *testSource) Layout() memory.Source { return memory.Layout(s.set) }

func (s *testSource) Room(int64) (int64, bool) { return 0, false }

func (s *testSource) Weights(_ context.Context, compute gpu.Stream, _ int64) (src memory.Source, err error) {
	src, s.stop, err = s.open(s.dev, compute)
	return src, err
}

// resident keeps all weights on the device.
func resident(t testing.TB, set *memory.WeightSet) source {
	return source{set, func(dev gpu.Device, _ gpu.Stream) (memory.Source, func() error, error) {
		r, err := memory.NewResident(context.Background(), dev, set)
		return r, r.Close, err
	}}
}

// streamed keeps no block on the device.
func streamed(t testing.TB, set *memory.WeightSet) source {
	return source{set, func(dev gpu.Device, compute gpu.Stream) (memory.Source, func() error, error) {
		s, err := memory.NewStreamer(context.Background(), dev, set, memory.Options{
			Streamed: memory.Spread(set.Units, 1), Slots: memory.MinSlots})
		if err != nil {
			return nil, nil, err
		}
		s.Bind(compute)
		return s, s.Close, nil
	}}
}

// newTestTrainer builds a trainer on a CPU device of its own.
func newTestTrainer(t testing.TB, p plan, from source) *trainer {
	t.Helper()
	dev, err := cpu.New()
	require.NoError(t, err)
	src := &testSource{source: from, dev: dev}
	tr, err := newTrainer(context.Background(), p, src)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, tr.close())
		require.NoError(t, tr.close(), "closed twice")
		require.NoError(t, src.stop())
		require.NoError(t, dev.Close())
	})
	return tr
}

// hostBatch returns a batch with memory of its own.
func (t *trainer) hostBatch(tb testing.TB, sh port.Shape) *port.Batch {
	b := blank(sh, t.plan.model)
	var bufs []gpu.Buffer
	for _, x := range []*tensor.Tensor{&b.Latent, &b.Text, &b.Refs} {
		if !x.Valid() {
			continue
		}
		buf, err := t.dev.Alloc(x.Bytes())
		require.NoError(tb, err)
		bufs = append(bufs, buf)
		x.Buf = buf
	}
	b.Free = func(after gpu.Event) {
		require.NoError(tb, after.Await(context.Background()))
		for _, buf := range bufs {
			require.NoError(tb, buf.Free())
		}
	}
	return b
}

// weightSet makes the float32 weights of a model from the elements of its tensors.
func weightSet(c flux2.Config, from func(flux2.Tensor) []float32) *memory.WeightSet {
	tensors := map[string]flux2.Tensor{}
	unit := func(u flux2.Unit) memory.Unit {
		out := memory.Unit{Name: u.Name, Block: u.Block}
		for _, t := range u.Tensors {
			tensors[t.Name] = t
			out.Entries = append(out.Entries, memory.Entry{Name: t.Name, DType: f32, Shape: t.Shape, Off: out.Bytes, Scale: -1})
			out.Bytes += (4*t.Params() + tensor.Align - 1) / tensor.Align * tensor.Align
		}
		return out
	}
	set := &memory.WeightSet{Config: c.JSON(), QType: "f32", Source: "test", Outer: unit(c.Outer())}
	for _, u := range c.Units() {
		set.Units = append(set.Units, unit(u))
	}
	set.Fill = func(_ context.Context, u memory.Unit, dst []byte) error {
		clear(dst)
		for _, e := range u.Entries {
			data := from(tensors[e.Name])
			copy(dtype.View[float32](dst[e.Off:e.Off+int64(4*len(data))]), data)
		}
		return nil
	}
	return set
}

// modelFolder gives the weights of a model folder of the golden data.
func modelFolder(t testing.TB, dir string) (flux2.Config, *memory.WeightSet) {
	m, err := weights.OpenTransformer(golden.Path(dir))
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	return m.Config, weightSet(m.Config, func(w flux2.Tensor) []float32 {
		data, err := m.Weight(w.Name).Float32()
		require.NoError(t, err)
		return data
	})
}

// randomModel gives a model of that shape whose layers neither grow nor shrink
// what passes.
func randomModel(c flux2.Config) *memory.WeightSet {
	return weightSet(c, func(w flux2.Tensor) []float32 {
		data := make([]float32, w.Params())
		rng.New(7, "test/weights", w.Name).FillNormal(data, 0)
		for i := range data {
			if w.Norm() {
				data[i] = 1 + 0.1*data[i]
			} else {
				data[i] /= float32(math.Sqrt(float64(w.Shape[1])))
			}
		}
		return data
	})
}
