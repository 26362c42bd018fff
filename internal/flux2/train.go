package flux2

import (
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// Loss queues the loss of a prediction [B, H·W, C'] and assigns its gradient to
// dpred, both of the activations' type. What it takes from the arena is gone
// when it returns.
type Loss func(c *ops.Ctx, pred, dpred tensor.Tensor)

// TrainOptions say how a training pass is run. They change no result but by
// what is asked for.
type TrainOptions struct {
	// Keep is what is kept of the blocks for the backward pass.
	Keep Keep
	// After, where set, is called when all work of a block's backward pass is
	// queued: its adapter's gradients are complete and nothing reads its values
	// any more. Blocks come in reverse order.
	After func(block int) error
	// Inputs asks for gradients of the inputs.
	Inputs InputGrads
}

// InputGrads are where gradients of inputs are assigned, of the activations'
// type; the zero Tensor where they are not wanted.
type InputGrads struct {
	Tokens tensor.Tensor // [B, H·W, C]
	Text   tensor.Tensor // [B, L, J]
}

func (g InputGrads) wanted() bool { return g.Tokens.Valid() || g.Text.Valid() }

// lowest returns the lowest block that a backward pass goes down to.
func (m *Model) lowest(opt TrainOptions) int {
	if opt.Inputs.wanted() {
		return 0
	}
	return m.trained
}

// Forward queues a forward pass and assigns the prediction pred [B, H·W, C'],
// the velocity ε − x₀, of the activations' type.
func (m *Model) Forward(c *ops.Ctx, in Input, pred tensor.Tensor) error {
	defer c.Scope()()
	p, err := m.begin(c, in)
	if err != nil {
		return err
	}
	// Two residuals of each kind take turns.
	doubles := [2]residual{m.newStreams(p), m.newStreams(p)}
	singles := [2]residual{m.newResidual(p, len(m.blocks)), m.newResidual(p, len(m.blocks))}
	turn := func(i int) residual {
		if i < m.cfg.DoubleBlocks {
			return doubles[i%2]
		}
		return singles[i%2]
	}
	m.outer.embed(p, turn(0), in)
	for i := range m.blocks {
		release := c.Scope()
		if err := m.run(p, i, turn(i+1), turn(i), kept{}); err != nil {
			return err
		}
		release()
	}
	m.outer.head(p, pred, turn(len(m.blocks)))
	return nil
}

// Train queues a forward pass, the loss, and a backward pass that adds to the
// gradients of the adapter. It goes no deeper than the lowest block with
// something to train.
//
// The arena holds, from below: modulations, prediction and gradients, every
// block's input (and attention, where that is kept), and on top what one block
// keeps and its backward pass needs. The last block is not computed twice.
func (m *Model) Train(c *ops.Ctx, in Input, loss Loss, opt TrainOptions) error {
	defer c.Scope()()
	p, err := m.begin(c, in)
	if err != nil {
		return err
	}
	n := len(m.blocks)
	image, _ := p.shape.Tokens()
	pred := c.New(p.shape.B, image, m.cfg.OutChannels)
	dpred := c.New(pred.Shape...)
	d := m.newResidual(p, n)
	inputs := make([]residual, n+1)
	attentions := make([]kept, n)
	lowest := m.lowest(opt)
	inputs[0] = m.newResidual(p, 0)
	m.outer.embed(p, inputs[0], in)
	var top func()
	for i := range n {
		inputs[i+1] = m.newResidual(p, i+1)
		if opt.Keep == KeepAttention && i >= lowest && i < n-1 {
			attentions[i] = newKept(p)
		}
		release := c.Scope()
		if err := m.run(p, i, inputs[i+1], inputs[i], attentions[i]); err != nil {
			return err
		}
		switch {
		case i == n-1:
			top = release
		case opt.Keep != KeepAll:
			release()
		}
	}

	m.lossAndHead(p, pred, dpred, d, inputs[n], loss)

	for i := n - 1; i >= lowest; i-- {
		if i == m.cfg.DoubleBlocks-1 {
			streams := m.newStreams(p)
			c.Run(ops.Split{A: streams.txt, B: streams.img, X: d.all, Batch: p.shape.B})
			d = streams
		}
		again := opt.Keep != KeepAll && i < n-1
		if err := m.runBackward(p, i, d, inputs[i], attentions[i].again(), again, i > lowest || opt.Inputs.wanted()); err != nil {
			return err
		}
		if i == n-1 && opt.Keep != KeepAll {
			top()
		}
		if opt.After != nil {
			if err := opt.After(i); err != nil {
				return err
			}
		}
	}
	if opt.Inputs.wanted() {
		m.outer.embedBackward(p, opt.Inputs, d)
	}
	return nil
}

// lossAndHead queues the head, the loss, and the gradient d of the last block's output.
func (m *Model) lossAndHead(p *pass, pred, dpred tensor.Tensor, d, out residual, loss Loss) {
	defer p.c.Scope()()
	m.outer.head(p, pred, out)
	func() {
		defer p.c.Scope()()
		loss(p.c, pred, dpred)
	}()
	m.outer.headBackward(p, d, dpred)
}

// runBackward queues block i's backward pass, its forward pass before it where
// not all was kept.
func (m *Model) runBackward(p *pass, i int, d, in residual, at kept, again, inputs bool) error {
	defer p.c.Scope()()
	if err := m.acquire(i); err != nil {
		return err
	}
	if again {
		m.blocks[i].forward(p, residual{}, in, at)
	}
	m.blocks[i].backward(p, d, inputs)
	m.weights.Release(i)
	return nil
}
