package flux2

import (
	"errors"
	"fmt"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/nn"
)

// Model is a FLUX.2 transformer whose frozen weights come from a memory.Source
// and whose Linears an nn.Adapter may have changed.
//
// A Model belongs to the goroutine that queues its work. Between passes it holds
// no device memory but the rotation tables of the shapes it was prepared for.
type Model struct {
	cfg     Config
	weights memory.Source
	outer   outer
	blocks  []block
	trained int // the lowest block with something to train; len(blocks) where there is none
	tables  map[string]rotation
	buffers []gpu.Buffer // of tables

	// Probe, where it is set, is told every named activation as it is queued:
	// for finding the first that is not finite, and for parity tests. Its content
	// is there in stream order, until the next op.
	Probe func(c *ops.Ctx, name string, t tensor.Tensor)
}

// block is what is recomputed, run backward and updated as one.
type block interface {
	// bind sets the frozen weights.
	bind(p memory.Params) error
	// forward assigns the block's output and keeps, in the arena and the block,
	// what backward needs. With the zero residual as out it only does the latter.
	// What its attention computes lies in at, where that is given.
	forward(p *pass, out, in residual, at kept)
	// backward turns d, the gradient of the output, into that of the input; the
	// latter only where inputs is set. It adds to the gradients of adapters.
	backward(p *pass, d residual, inputs bool)
}

// residual is what blocks hand on: two streams before and between double
// blocks, then one, with the text first in every sample.
type residual struct {
	txt, img tensor.Tensor // [B·L, D], [B·N, D], N image tokens with references
	all      tensor.Tensor // [B·S, D], S = L + N
}

// pass is what one run through the model has in hand.
type pass struct {
	c                   *ops.Ctx
	shape               Shape
	width, inner, heads int // D, I, H
	eps                 float32
	rope                rotation // of the whole sequence
	mod                 modulations
	probe               func(name string, t tensor.Tensor)
}

// New builds the model. Weights outside the blocks are read from the source at once.
func New(c Config, weights memory.Source, ad nn.Adapter) (*Model, error) {
	m := &Model{cfg: c, weights: weights, outer: newOuter(c), tables: map[string]rotation{}}
	for i := range c.DoubleBlocks {
		m.blocks = append(m.blocks, newDoubleBlock(c, ad, i))
	}
	for i := range c.SingleBlocks {
		m.blocks = append(m.blocks, newSingleBlock(c, ad, i))
	}
	m.trained = len(m.blocks)
	for _, module := range c.Modules() {
		if ad.Trains(module.Name) {
			m.trained = min(m.trained, module.Block)
		}
	}
	return m, m.outer.bind(weights.Outer())
}

// Config returns the model's shape.
func (m *Model) Config() Config { return m.cfg }

// rotation is the RoPE tables of a range of the sequence, [tokens, HeadDim] float32.
type rotation struct{ cos, sin tensor.Tensor }

// rows returns the tables of tokens [lo, hi).
func (r rotation) rows(lo, hi int) rotation {
	return rotation{cos: r.cos.RowRange(lo, hi), sin: r.sin.RowRange(lo, hi)}
}

// Prepare makes the rotation tables of shapes on the device, once each. A shape
// must be prepared before a pass with it.
func (m *Model) Prepare(dev gpu.Device, st gpu.Stream, shapes ...Shape) error {
	for _, s := range shapes {
		key := s.sequenceKey()
		if _, ok := m.tables[key]; ok {
			continue
		}
		r, err := m.upload(dev, st, s)
		if err != nil {
			return fmt.Errorf("rotation tables of %+v: %w", s, err)
		}
		m.tables[key] = r
	}
	return nil
}

// sequenceKey names what the rotation tables depend on.
func (s Shape) sequenceKey() string { return fmt.Sprint(s.L, s.H, s.W, s.Refs) }

func (m *Model) upload(dev gpu.Device, st gpu.Stream, s Shape) (rotation, error) {
	rows, hd := s.Sequence(), m.cfg.HeadDim
	table := int64(rows) * int64(hd) * 4
	buf, err := dev.Alloc(2 * table)
	if err != nil {
		return rotation{}, err
	}
	m.buffers = append(m.buffers, buf)
	host, err := dev.AllocHost(2 * table)
	if err != nil {
		return rotation{}, err
	}
	st.Do(func() error {
		cos, sin := m.cfg.rope(s.positions())
		copy(tensor.New(host, 0, tensor.F32, rows, hd).Float32s(), cos)
		copy(tensor.New(host, table, tensor.F32, rows, hd).Float32s(), sin)
		return nil
	})
	st.Copy(gpu.Region{Buf: buf, Len: 2 * table}, gpu.Region{Buf: host, Len: 2 * table})
	err = errors.Join(st.Sync(), host.Free())
	return rotation{cos: tensor.New(buf, 0, tensor.F32, rows, hd), sin: tensor.New(buf, table, tensor.F32, rows, hd)}, err
}

// Close frees the rotation tables. Calling it twice is allowed.
func (m *Model) Close() error {
	var errs []error
	for _, b := range m.buffers {
		errs = append(errs, b.Free())
	}
	m.buffers, m.tables = nil, map[string]rotation{}
	return errors.Join(errs...)
}

// PlanStep announces to the source the blocks that one Train takes.
func (m *Model) PlanStep(opt TrainOptions) {
	n := len(m.blocks)
	var plan []int
	for i := range n {
		plan = append(plan, i)
	}
	for i := n - 1; i >= m.lowest(opt); i-- {
		plan = append(plan, i)
	}
	m.weights.Plan(plan...)
}

// PlanForward announces the blocks that one Forward takes.
func (m *Model) PlanForward() {
	var plan []int
	for i := range m.blocks {
		plan = append(plan, i)
	}
	m.weights.Plan(plan...)
}
