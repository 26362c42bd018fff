package train

import (
	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/flux2"
	"longship/internal/optim"
	"longship/stages/port"
)

// micro queues micro-batch i of a step: noise, forward and backward pass; the
// first starts the step and the last updates the adapter. Batch and draw are
// given back.
func (t *trainer) micro(b *port.Batch, d *draw, i int, last bool, s optim.Step) error {
	c := t.ctx
	defer c.Scope()()
	t.profile.Forward()
	t.await(b, d)
	if i == 0 {
		t.start()
	}
	xt, target := t.mix(b, d)
	opt := flux2.TrainOptions{Keep: t.keep}
	if last && t.inside() {
		opt.After = t.updateInside(s)
	}
	t.model.PlanStep(opt)
	err := t.model.Train(c, t.input(b, xt, d.sigma), t.loss(target, d.weight, t.board.loss(i)), opt)
	if err != nil {
		return err
	}
	if last && !t.inside() {
		t.updateAll(s)
	}
	t.giveBack(b, d)
	if last {
		t.profile.End()
	}
	return nil
}

// await makes work queued from now on wait for a batch and its draw.
func (t *trainer) await(b *port.Batch, d *draw) {
	t.profile.Wait("inputs", func() {
		for _, e := range []gpu.Event{b.Ready, d.ready} {
			if e != nil {
				t.compute.Wait(e)
			}
		}
	})
}

// giveBack says that the work queued so far is the last that reads a batch and
// its draw.
func (t *trainer) giveBack(b *port.Batch, d *draw) {
	done := t.compute.Record()
	b.Release(done)
	d.release(done)
}

// start queues the start of a step: no gradients, no norms, the flag lowered.
func (t *trainer) start() {
	t.board.start(t.ctx)
	t.clipper.Reset(t.ctx)
	for _, b := range t.set.Blocks() {
		if len(b.Params) > 0 {
			t.ctx.Run(ops.Zero{Y: b.Grads})
		}
	}
}

// mix queues x_t and the target ε − x₀ of a batch.
func (t *trainer) mix(b *port.Batch, d *draw) (xt, target tensor.Tensor) {
	xt, target = t.ctx.NewF32(b.Latent.Shape...), t.ctx.NewF32(b.Latent.Shape...)
	t.ctx.Run(ops.FlowMix{XT: xt, Target: target, X0: b.Latent, Noise: d.noise, Sigma: d.sigma})
	return xt, target
}

// loss is the loss of one micro-batch of a step: its mean goes to dst, its
// gradient counts as one part of the step's.
func (t *trainer) loss(target, weight, dst tensor.Tensor) flux2.Loss {
	return func(c *ops.Ctx, pred, dpred tensor.Tensor) {
		t.profile.Backward()
		v, dv := pred, dpred
		if c.Act != tensor.F32 {
			v = c.NewF32(pred.Shape...)
			dv = v
			c.Run(ops.Cast{Y: v, X: pred})
		}
		c.Run(ops.FlowLoss{
			Loss: dst, Samples: c.NewF32(weight.Len()), DV: dv, V: v, Target: target, Weight: weight,
			Flag: t.board.flag, GradScale: 1 / float32(t.micros),
		})
		if c.Act != tensor.F32 {
			c.Run(ops.Cast{Y: dpred, X: dv})
		}
	}
}

// updateInside returns what updates one block as soon as its gradients are
// complete, within its own norm. A gradient that is not finite raises the flag
// from that block on: blocks behind it have been updated by then, with finite
// gradients of the same step.
func (t *trainer) updateInside(s optim.Step) func(block int) error {
	counted := false
	return func(block int) error {
		if len(t.set.Blocks()[block].Params) == 0 {
			return nil
		}
		t.clipper.Measure(t.ctx, block)
		coef := t.clipper.Limit(t.ctx, block, t.board.flag)
		if !counted {
			t.opt.Count(t.ctx, t.board.flag)
			counted = true
		}
		t.update(block, s, coef)
		return nil
	}
}

// updateAll queues the update of all blocks within one norm.
func (t *trainer) updateAll(s optim.Step) {
	blocks := t.set.Blocks()
	for i := range blocks {
		t.clipper.Measure(t.ctx, i)
	}
	coef := t.clipper.Limit(t.ctx, 0, t.board.flag)
	t.opt.Count(t.ctx, t.board.flag)
	for i := range blocks {
		t.update(i, s, coef)
	}
}

func (t *trainer) update(block int, s optim.Step, coef tensor.Tensor) {
	t.opt.Update(t.ctx, block, s, coef, t.board.flag)
	if t.ema != nil {
		t.ema.Update(t.ctx, block, t.board.flag)
	}
}
