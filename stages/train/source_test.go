package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/memory"
	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/rng"
	"longship/internal/runstate"
	"longship/pipeline"
	"longship/pipeline/stagetest"
	"longship/stages/port"
)

// tiny is a model small enough for many runs: D = 32, one double block and two
// single ones.
func tiny() flux2.Config {
	c := flux2.Default()
	c.InChannels, c.OutChannels, c.DoubleBlocks, c.SingleBlocks = 8, 8, 1, 2
	c.HeadDim, c.Heads, c.TextDim, c.TimeChannels = 16, 2, 24, 16
	c.Axes = []int{4, 4, 4, 4}
	return c
}

// fakeSource is a port.Source of random samples in two shapes, one of them with
// reference images. Batch k is the same in every run.
type fakeSource struct {
	t       testing.TB
	dev     gpu.Device
	model   flux2.Config
	from    source
	stop    func() error
	base    string
	samples int
	val     int
	room    int64                // beside the weights; 0 is without a limit
	poison  func(index int) bool // batches with a NaN in the latent
	spoil   func(*port.Batch)    // what else is wrong with a batch
}

func newSource(t testing.TB) *fakeSource {
	dev, err := cpu.New()
	require.NoError(t, err)
	s := &fakeSource{t: t, dev: dev, model: tiny(), base: "b1", samples: 5, val: 1, poison: func(int) bool { return false }, spoil: func(*port.Batch) {}}
	s.from = resident(t, randomModel(s.model))
	return s
}

// close is called when the stage has freed what is its own.
func (s *fakeSource) close() {
	if s.stop != nil {
		require.NoError(s.t, s.stop())
	}
	require.NoError(s.t, s.dev.Close())
}

func (s *fakeSource) Device() gpu.Device   { return s.dev }
func (s *fakeSource) Config() []byte       { return s.model.JSON() }
func (s *fakeSource) BaseIdentity() string { return s.base }
func (s *fakeSource) Validation() int      { return s.val }

func (s *fakeSource) Layout() memory.Source { return memory.Layout(s.from.set) }

func (s *fakeSource) Room(taken int64) (int64, bool) { return s.room - taken, s.room > 0 }

func (s *fakeSource) Weights(_ context.Context, compute gpu.Stream, _ int64) (memory.Source, error) {
	src, stop, err := s.from.open(s.dev, compute)
	s.stop = stop
	return src, err
}

func (s *fakeSource) Shapes() []port.Shape {
	return []port.Shape{{B: 2, H: 2, W: 3, L: 5}, {B: 2, H: 3, W: 2, L: 5, Refs: [][2]int{{1, 2}, {2, 2}}}, {B: 1, H: 2, W: 2, L: 5}}
}

func (s *fakeSource) Dataset() []string {
	var ids []string
	for i := range s.samples {
		ids = append(ids, fmt.Sprintf("s%d×1", i))
	}
	return ids
}

func (s *fakeSource) LoadValidation(_ context.Context, i int) (*port.Batch, error) {
	return s.batch(fmt.Sprint("v", i), i, s.Shapes()[2]), nil
}

// training returns batch k of the run.
func (s *fakeSource) training(k int) *port.Batch {
	b := s.batch(fmt.Sprint("s", k%s.samples), k, s.Shapes()[k%2])
	if s.poison(k) {
		b.Latent.Float32s()[3] = float32(math.NaN())
	}
	s.spoil(b)
	return b
}

func (s *fakeSource) batch(id string, index int, sh port.Shape) *port.Batch {
	b := blank(sh, s.model)
	b.Index, b.Source = index, s
	for i := range b.Items {
		b.Items[i] = port.Item{ID: fmt.Sprint(id, ".", i), Weight: 1}
	}
	for name, x := range map[string]*tensor.Tensor{"latent": &b.Latent, "text": &b.Text, "refs": &b.Refs} {
		if !x.Valid() {
			continue
		}
		n := x.Len()
		x.Buf = heap(make([]float32, n))
		rng.New(1, "test/"+name, id).FillNormal(x.Float32s(), 0)
	}
	return b
}

// heap is a gpu.Buffer in Go's memory.
type heap []float32

func (h heap) Size() int64  { return int64(4 * len(h)) }
func (h heap) Host() []byte { return dtype.Bytes([]float32(h)) }
func (h heap) Free() error  { return nil }

// feed sends batches from number `from` on until the stage takes no more.
func (s *fakeSource) feed(from int) stagetest.Option {
	return stagetest.FeedFunc("batches", func(_ context.Context, send func(*port.Batch) error) error {
		for k := from; ; k++ {
			if err := send(s.training(k)); err != nil {
				if errors.Is(err, pipeline.ErrDone) {
					return nil
				}
				return err
			}
		}
	})
}

// snapshot is every tensor of a state by name, and its step and counters.
type snapshot struct {
	step     int
	counters map[string]int64
	tensors  map[string][]byte
}

func snap(st *port.State) snapshot {
	s := snapshot{st.Step, st.Counters, map[string][]byte{}}
	add := func(name string, t tensor.Tensor) {
		if t.Valid() {
			s.tensors[name] = append([]byte(nil), t.Region().Bytes()...)
		}
	}
	for _, p := range st.Params {
		add(p.Name()+"/value", p.Value)
		add(p.Name()+"/ema", p.EMA)
		for k, t := range p.Optimizer {
			add(p.Name()+"/"+k, t)
		}
	}
	return s
}

// trial is one run of the stage.
type trial struct {
	dir     string // output folder; one of its own where it is empty
	config  string // YAML of the stage
	head    string
	source  *fakeSource
	saveAt  func(pipeline.Moment) bool // steps at which the state is saved and taken
	signals chan os.Signal
	onStep  func(port.Step)
	cleanup func()                  // before the source is closed
	factory func() pipeline.Factory // of the stage, where it is not Factory
}

// course is what came of it.
type course struct {
	*stagetest.Outcome
	steps  []port.Step
	val    []port.Validation
	states []snapshot
	at     []pipeline.Moment
}

func (c course) last() snapshot { return c.states[len(c.states)-1] }

// run runs the stage as the engine does; a state is saved where saveAt says.
func (tr trial) run(t testing.TB) course {
	t.Helper()
	if tr.dir == "" {
		tr.dir = t.TempDir()
	}
	if tr.source == nil {
		tr.source = newSource(t)
	}
	if tr.saveAt == nil {
		tr.saveAt = func(at pipeline.Moment) bool { return at.Last }
	}
	folder := runstate.In(filepath.Join(tr.dir, "output"), "trial")
	from := 0
	if c, _, err := folder.Latest(context.Background()); err == nil && c != nil {
		from = int(c.Counters[runstate.CountMicroBatches])
	}
	var c course
	steps := stagetest.Collect[port.Step]("steps").Each(func(s port.Step) error {
		if tr.onStep != nil {
			tr.onStep(s)
		}
		return nil
	})
	val := stagetest.Collect[port.Validation]("validation")
	borrow := stagetest.BorrowAt("state", tr.saveAt, func(st *port.State, at pipeline.Moment) error {
		c.states, c.at = append(c.states, snap(st)), append(c.at, at)
		_, err := folder.Save(context.Background(), runstate.SaveOptions{Files: []runstate.AdapterFile{{Layout: "comfyui", DType: "fp32", Keep: 9}}, Final: at.Last}, st)
		return err
	})
	opts := []stagetest.Option{stagetest.Dir(tr.dir), stagetest.Head("name: trial\n" + tr.head), tr.source.feed(from), steps, val, borrow}
	if tr.signals != nil {
		opts = append(opts, stagetest.Signals(tr.signals))
	}
	factory := Factory()
	if tr.factory != nil {
		factory = tr.factory()
	}
	c.Outcome = stagetest.Try(t, factory, tr.config, opts...)
	c.steps, c.val = steps.Values, val.Values
	if tr.cleanup != nil {
		tr.cleanup()
	}
	tr.source.close()
	return c
}
