package train

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/profile"
	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/flow"
	"longship/internal/flux2"
	"longship/internal/optim"
	"longship/stages/port"
)

// plan is what a trainer is built from, all of it decided before it takes memory.
type plan struct {
	model      flux2.Config
	shapes     []port.Shape // of every batch that may come
	layers     []adapter.Layer
	dtype      tensor.DType // of the adapter
	init       string       // of the adapter
	seed       uint64
	timesteps  flow.Timesteps
	guidance   float64
	micros     int // micro-batches in a step
	optimizer  optim.Config
	clip       float64 // 0 limits nothing
	scope      string
	emaDecay   float64 // 0 keeps no average
	recompute  string  // what is computed again in the backward pass
	act        tensor.DType
	validation int  // validation samples
	profile    bool // steps are measured
}

// trainer is everything of a run that lies on the device, and the order in
// which work on it is queued. All memory is taken by newTrainer; a step takes
// none. It belongs to one goroutine; close frees it.
type trainer struct {
	plan
	dev     gpu.Device
	compute gpu.Stream
	ctx     *ops.Ctx
	model   *flux2.Model
	set     *adapter.Set
	opt     *optim.Optimizer
	clipper *optim.Clip
	ema     *optim.EMA // nil without
	draws   *drawer
	board   *board
	probe   *probe // nil without validation samples
	move    *transfer
	level   tensor.Tensor     // f32 [greatest B]: the guidance of every item
	keep    flux2.Keep        // for the backward pass
	profile *profile.Recorder // nil where steps are not measured
	slab    int64             // bytes of workspace

	closers []func() error
}

// newTrainer takes the memory and sets the adapter to its starting values.
func newTrainer(ctx context.Context, p plan, source weightSource) (*trainer, error) {
	dev := &meter{Device: source.Device()}
	t := &trainer{plan: p, dev: dev}
	if err := t.build(ctx, dev, source); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// weightSource is what a trainer takes of a port.Source.
type weightSource interface {
	Device() gpu.Device
	Layout() memory.Source
	Room(taken int64) (bytes int64, limited bool)
	Weights(ctx context.Context, compute gpu.Stream, taken int64) (memory.Source, error)
}

// build takes the trainer's own memory, and then the weights into what is left.
func (t *trainer) build(ctx context.Context, dev *meter, source weightSource) (err error) {
	if t.compute, err = t.dev.NewStream("compute"); err != nil {
		return err
	}
	t.onClose(func() error { _ = t.compute.Close(); return nil }) // its failure was Run's error
	t.ctx = &ops.Ctx{Stream: t.compute, Act: t.act}
	if t.plan.profile {
		t.profile = profile.New(source.Device(), t.compute)
	}
	if t.set, err = adapter.New(t.dev, t.plan.model.Blocks(), t.layers, t.dtype); err != nil {
		return err
	}
	t.onClose(t.set.Close)
	if err := t.set.Init(t.compute, t.seed, t.init); err != nil {
		return err
	}
	if err := t.buildUpdate(); err != nil {
		return err
	}
	if t.draws, err = newDrawer(t.dev, "noise", t.shapes, t.plan.model.InChannels); err != nil {
		return err
	}
	t.draws.lane = t.profile.Lane("noise", t.draws.stream)
	t.onClose(t.draws.close)
	if err := t.buildGuidance(); err != nil {
		return err
	}
	tables, err := t.buildWorkspace(source, dev)
	if err != nil {
		return err
	}
	weights, err := source.Weights(ctx, t.compute, dev.bytes+tables)
	if err != nil {
		return err
	}
	if m, ok := weights.(measured); ok {
		m.Measure(t.profile)
	}
	if t.model, err = flux2.New(t.plan.model, weights, t.set); err != nil {
		return err
	}
	t.onClose(t.model.Close)
	if err := t.model.Prepare(t.dev, t.compute, modelShapes(t.shapes)...); err != nil {
		return err
	}
	return t.compute.Sync()
}

// buildUpdate takes what turns gradients into an update.
func (t *trainer) buildUpdate() (err error) {
	blocks := t.set.Blocks()
	if t.opt, err = optim.New(t.dev, t.compute, t.optimizer, blocks); err != nil {
		return err
	}
	t.onClose(t.opt.Close)
	if t.clipper, err = optim.NewClip(t.dev, t.clip, t.inside(), blocks); err != nil {
		return err
	}
	t.onClose(t.clipper.Close)
	if t.emaDecay > 0 {
		if t.ema, err = optim.NewEMA(t.dev, t.emaDecay, blocks); err != nil {
			return err
		}
		t.onClose(t.ema.Close)
		t.ema.Start(t.compute)
	}
	if t.board, err = newBoard(t.dev, t.compute, t.micros, t.clipper.Norms(), t.opt.Taken()); err != nil {
		return err
	}
	t.onClose(t.board.close)
	if t.validation > 0 {
		if t.probe, err = newProbe(t.dev, t.validation, t.shapes, t.plan.model.InChannels); err != nil {
			return err
		}
		t.onClose(t.probe.close)
	}
	if t.move, err = newTransfer(t.dev, t.compute); err != nil {
		return err
	}
	t.onClose(t.move.close)
	return nil
}

func (t *trainer) buildGuidance() error {
	n := 0
	for _, sh := range t.shapes {
		n = max(n, sh.B)
	}
	buf, err := t.dev.Alloc(int64(4 * n))
	if err != nil {
		return fmt.Errorf("guidance: %w", err)
	}
	t.onClose(buf.Free)
	t.level = tensor.New(buf, 0, tensor.F32, n)
	raw := make([]byte, 0, 4*n)
	for range n {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(t.guidance)))
	}
	return t.move.Write(context.Background(), t.level, raw)
}

// buildWorkspace decides what is kept for the backward pass, finds out by a dry
// run over every shape how much the largest pass then takes, and takes it as one
// slab. It returns the bytes that the model's tables will take.
func (t *trainer) buildWorkspace(source weightSource, dev *meter) (tables int64, err error) {
	if tables, err = t.choose(source, dev); err != nil {
		return 0, fmt.Errorf("plan the workspace: %w", err)
	}
	slab, err := t.dev.Alloc(t.slab)
	if err != nil {
		return 0, fmt.Errorf("workspace of %d MiB for activations: %w", t.slab>>20, err)
	}
	t.onClose(slab.Free)
	t.ctx.Arena = tensor.NewArena(slab, t.compute.Fail)
	return tables, nil
}

// inside says whether blocks are updated inside the backward pass.
func (t *trainer) inside() bool { return t.scope != scopeGlobal }

// input is a noisy batch as the model takes it.
func (t *trainer) input(b *port.Batch, xt, sigma tensor.Tensor) flux2.Input {
	in := flux2.Input{Shape: flux2.Shape(b.Shape), Tokens: xt, Refs: b.Refs, Text: b.Text, Timestep: sigma}
	if t.plan.model.Guidance {
		in.Guidance = tensor.New(t.level.Buf, t.level.Off, tensor.F32, b.Shape.B)
	}
	return in
}

func modelShapes(shapes []port.Shape) []flux2.Shape {
	out := make([]flux2.Shape, len(shapes))
	for i, s := range shapes {
		out[i] = flux2.Shape(s)
	}
	return out
}

func (t *trainer) onClose(f func() error) { t.closers = append(t.closers, f) }

// close waits for the queued work and frees everything. Calling it twice is allowed.
func (t *trainer) close() error {
	var errs []error
	if len(t.closers) > 0 {
		_ = t.compute.Sync() // its failure was Run's error
	}
	for i := len(t.closers) - 1; i >= 0; i-- {
		errs = append(errs, t.closers[i]())
	}
	t.closers = nil
	return errors.Join(errs...)
}
