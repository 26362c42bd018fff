package train

import (
	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/flux2"
	"longship/internal/optim"
	"longship/stages/port"
)

// meter is a device that adds up what is taken of its memory.
type meter struct {
	gpu.Device
	bytes int64
}

// allocation is what a card's memory is given out in.
const allocation = 2 << 20

// Alloc takes memory and counts it, on a card in whole allocations.
func (m *meter) Alloc(bytes int64) (gpu.Buffer, error) {
	b, err := m.Device.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	m.bytes += m.takes(bytes)
	return b, nil
}

// takes returns what an allocation of bytes takes of the device.
func (m *meter) takes(bytes int64) int64 {
	if _, card := m.Device.(gpu.MemReporter); card && bytes >= allocation/2 {
		bytes = (bytes + allocation - 1) / allocation * allocation
	}
	return bytes
}

// keeps are what is kept of the blocks for the backward pass, by what is
// computed again.
var keeps = map[string]flux2.Keep{recomputeBlock: flux2.KeepInput, recomputeLinear: flux2.KeepAttention, recomputeNone: flux2.KeepAll}

// recomputed names what is computed again.
func (t *trainer) recomputed() string {
	for name, keep := range keeps {
		if keep == t.keep {
			return name
		}
	}
	panic("train: nothing is kept")
}

// choose decides what is kept, and measures the workspace and the model's tables
// with it. Where the config leaves it open, it is the most that fits into what is
// left of the device beside all weights: none that could lie there is streamed for
// it. Of a device that names no limit no more is taken than for the inputs.
func (t *trainer) choose(source weightSource, dev *meter) (tables int64, err error) {
	layout := source.Layout()
	if keep, forced := keeps[t.recompute]; forced {
		t.keep = keep
		t.slab, tables, err = t.measure(layout)
		return tables, err
	}
	for _, t.keep = range []flux2.Keep{flux2.KeepAll, flux2.KeepAttention, flux2.KeepInput} {
		if t.slab, tables, err = t.measure(layout); err != nil {
			return 0, err
		}
		if room, limited := source.Room(dev.bytes + tables); limited && dev.takes(t.slab) <= room {
			break
		}
	}
	return tables, nil
}

// measure returns the bytes of workspace that a pass over the largest of the
// run's shapes takes, and those of the model's tables: the passes themselves,
// run on a device that does nothing.
func (t *trainer) measure(layout memory.Source) (workspace, tables int64, err error) {
	dev := &meter{Device: gpu.NewDiscard()}
	stream, err := dev.NewStream("dry run")
	if err != nil {
		return 0, 0, err
	}
	arena := tensor.MeasuringArena()
	dry := *t
	dry.compute, dry.profile = stream, nil
	dry.ctx = &ops.Ctx{Stream: stream, Arena: arena, Act: t.act}
	if dry.model, err = flux2.New(t.plan.model, layout, t.set); err != nil {
		return 0, 0, err
	}
	if err := dry.model.Prepare(dev, stream, modelShapes(t.shapes)...); err != nil {
		return 0, 0, err
	}
	for _, sh := range t.shapes {
		b := blank(sh, t.plan.model)
		d, _ := t.draws.layout(nil, sh)
		d.slot = &drawSlot{}
		if err := dry.micro(b, &d, 0, false, optim.Step{}); err != nil {
			return 0, 0, err
		}
		if err := dry.forward(b, &d, dry.board.loss(0), dry.board.loss(0)); err != nil {
			return 0, 0, err
		}
	}
	return arena.Peak(), dev.bytes, stream.Sync()
}

// blank is a batch of a shape without memory.
func blank(sh port.Shape, c flux2.Config) *port.Batch {
	image, refs := sh.Tokens()
	b := &port.Batch{
		Items: make([]port.Item, sh.B), Shape: sh,
		Latent: tensor.New(nil, 0, tensor.F32, sh.B, image, c.InChannels),
		Text:   tensor.New(nil, 0, tensor.F32, sh.B, sh.L, c.TextDim),
	}
	if refs > 0 {
		b.Refs = tensor.New(nil, 0, tensor.F32, sh.B, refs, c.InChannels)
	}
	return b
}
