package flux2

import (
	"fmt"

	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// Input is a batch on the device. Tokens are float32 or of the activations' type.
type Input struct {
	Shape    Shape
	Tokens   tensor.Tensor // [B, H·W, C]: the noisy latents, row-major grid
	Refs     tensor.Tensor // [B, ΣhW, C]: reference latents; the zero Tensor without
	Text     tensor.Tensor // [B, L, J]
	Timestep tensor.Tensor // [B] float32: the noise level σ, 0..1
	Guidance tensor.Tensor // [B] float32; the zero Tensor without; klein takes none and ignores it
}

func (in Input) check(c Config) error {
	image, refs := in.Shape.Tokens()
	for _, t := range []struct {
		name       string
		t          tensor.Tensor
		rows, cols int
	}{
		{"tokens", in.Tokens, in.Shape.B * image, c.InChannels},
		{"text", in.Text, in.Shape.B * in.Shape.L, c.TextDim},
		{"references", in.Refs, in.Shape.B * refs, c.InChannels},
		{"timestep", in.Timestep, 1, in.Shape.B},
		{"guidance", in.Guidance, 1, in.Shape.B},
	} {
		switch absent := !t.t.Valid(); {
		case absent && (t.name == "guidance" || t.rows == 0):
		case absent || t.t.Rows() != t.rows || t.t.Cols() != t.cols:
			return fmt.Errorf("flux2: %s %v do not fit the batch %+v: want %d rows of %d", t.name, t.t.Shape, in.Shape, t.rows, t.cols)
		}
	}
	return nil
}

// begin checks the input and computes what all blocks share.
func (m *Model) begin(c *ops.Ctx, in Input) (*pass, error) {
	if err := in.check(m.cfg); err != nil {
		return nil, err
	}
	rope, ok := m.tables[in.Shape.sequenceKey()]
	if !ok {
		return nil, fmt.Errorf("flux2: the model was not prepared for %+v", in.Shape)
	}
	p := &pass{
		c: c, shape: in.Shape, width: m.cfg.Width(), inner: m.cfg.Inner(), heads: m.cfg.Heads,
		eps: float32(m.cfg.Eps), rope: rope, probe: func(string, tensor.Tensor) {},
	}
	if m.Probe != nil {
		p.probe = func(name string, t tensor.Tensor) { m.Probe(c, name, t) }
	}
	m.outer.condition(p, in)
	return p, nil
}

// newResidual takes the residual that block i is given; i = Blocks is the output.
func (m *Model) newResidual(p *pass, i int) residual {
	if i < m.cfg.DoubleBlocks {
		return m.newStreams(p)
	}
	return residual{all: p.c.New(p.shape.B*p.shape.Sequence(), p.width)}
}

func (m *Model) newStreams(p *pass) residual {
	image, refs := p.shape.Tokens()
	return residual{txt: p.c.New(p.shape.B*p.shape.L, p.width), img: p.c.New(p.shape.B*(image+refs), p.width)}
}

// run queues block i's forward pass, and joins the streams after the last
// double block. It keeps what the block keeps.
func (m *Model) run(p *pass, i int, out, in residual, at kept) error {
	if err := m.acquire(i); err != nil {
		return err
	}
	if i == m.cfg.DoubleBlocks-1 {
		streams := m.newStreams(p)
		m.blocks[i].forward(p, streams, in, at)
		m.probeStreams(p, i, streams)
		p.c.Run(ops.Concat{Y: out.all, A: streams.txt, B: streams.img, Batch: p.shape.B})
	} else {
		m.blocks[i].forward(p, out, in, at)
		m.probeStreams(p, i, out)
	}
	m.weights.Release(i)
	return nil
}

func (m *Model) acquire(i int) error {
	params, err := m.weights.Acquire(i)
	if err != nil {
		return fmt.Errorf("flux2: block %d: %w", i, err)
	}
	return m.blocks[i].bind(params)
}

func (m *Model) probeStreams(p *pass, i int, x residual) {
	if x.all.Valid() {
		p.probe(singlePrefix(i-m.cfg.DoubleBlocks), x.all)
		return
	}
	p.probe(doublePrefix(i, "txt"), x.txt)
	p.probe(doublePrefix(i, "img"), x.img)
}

// takeTokens copies n tokens of every sample, from token lo on, out of a joint
// tensor: dst [B·n, D], src [B·S, D].
func (p *pass) takeTokens(dst, src tensor.Tensor, lo, n int) {
	s := src.Rows() / p.shape.B
	for b := range p.shape.B {
		p.c.Run(ops.Copy{Y: dst.RowRange(b*n, (b+1)*n), X: src.RowRange(b*s+lo, b*s+lo+n)})
	}
}

// putTokens is the inverse of takeTokens; the other tokens of dst stay.
func (p *pass) putTokens(dst, src tensor.Tensor, lo, n int) {
	s := dst.Rows() / p.shape.B
	for b := range p.shape.B {
		p.c.Run(ops.Copy{Y: dst.RowRange(b*s+lo, b*s+lo+n), X: src.RowRange(b*n, (b+1)*n)})
	}
}
