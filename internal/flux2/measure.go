package flux2

import (
	"fmt"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/nn"
)

// Need is what a run of one shape takes.
type Need struct {
	Workspace int64                // bytes of the arena at once
	Kernels   map[string]gpu.Count // what was queued, by kernel
}

// Measure runs `run` dry for every shape, on a model without memory, and returns
// what each took: the arena of a real run must have the largest Workspace. The
// model given to run computes with the adapter and the activations' type; its
// weights are shaped and typed like those of the source, which is not touched
// (it must be a memory.Planner, or be without memory itself). The inputs are
// float32, with guidance and references where the shape has them.
func Measure(c Config, weights memory.Source, ad nn.Adapter, act tensor.DType, shapes []Shape, run func(m *Model, c *ops.Ctx, in Input) error) ([]Need, error) {
	if p, ok := weights.(memory.Planner); ok {
		weights = p.Layout()
	}
	m, err := New(c, weights, ad)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	needs := make([]Need, len(shapes))
	for i, s := range shapes {
		dev := gpu.NewDiscard()
		st, err := dev.NewStream("dry run")
		if err != nil {
			return nil, err
		}
		if err := m.Prepare(dev, st, s); err != nil {
			return nil, err
		}
		x := &ops.Ctx{Stream: st, Arena: tensor.MeasuringArena(), Act: act}
		if err := run(m, x, dryInput(c, s)); err != nil {
			return nil, fmt.Errorf("dry run of %+v: %w", s, err)
		}
		if err := st.Close(); err != nil {
			return nil, fmt.Errorf("dry run of %+v: %w", s, err)
		}
		needs[i] = Need{Workspace: x.Arena.Peak(), Kernels: dev.Counts()}
	}
	return needs, nil
}

// dryInput returns a batch without memory.
func dryInput(c Config, s Shape) Input {
	image, refs := s.Tokens()
	in := Input{
		Shape:    s,
		Tokens:   tensor.New(nil, 0, tensor.F32, s.B, image, c.InChannels),
		Text:     tensor.New(nil, 0, tensor.F32, s.B, s.L, c.TextDim),
		Timestep: tensor.New(nil, 0, tensor.F32, s.B),
		Guidance: tensor.New(nil, 0, tensor.F32, s.B),
	}
	if refs > 0 {
		in.Refs = tensor.New(nil, 0, tensor.F32, s.B, refs, c.InChannels)
	}
	return in
}
