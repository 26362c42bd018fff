package train

import (
	"context"
	"errors"
	"fmt"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/stages/port"
)

// validationSigmas are the noise levels at which a validation sample is measured.
var validationSigmas = []float64{1, 0.75, 0.5, 0.25}

// probe is what validations need beside the trainer: draws of their own, since
// the next step's waits in the trainer's, and the losses of the model and of
// predicting zero, for every sample and level.
type probe struct {
	draws        *drawer
	device, host gpu.Buffer
	loss, zero   tensor.Tensor // f32 [samples · levels]
}

func newProbe(dev gpu.Device, samples int, shapes []port.Shape, channels int) (*probe, error) {
	n := samples * len(validationSigmas)
	p := &probe{}
	var err error
	if p.device, err = dev.Alloc(int64(8 * n)); err != nil {
		return nil, fmt.Errorf("validation losses: %w", err)
	}
	if p.host, err = dev.AllocHost(int64(8 * n)); err != nil {
		return nil, errors.Join(fmt.Errorf("validation losses: %w", err), p.device.Free())
	}
	if p.draws, err = newDrawer(dev, "validation noise", shapes, channels); err != nil {
		return nil, errors.Join(err, p.device.Free(), p.host.Free())
	}
	p.loss = tensor.New(p.device, 0, tensor.F32, n)
	p.zero = tensor.New(p.device, int64(4*n), tensor.F32, n)
	return p, nil
}

func (p *probe) close() error {
	return errors.Join(p.draws.close(), p.device.Free(), p.host.Free())
}

// validate measures the validation samples, with the moving average where one
// is kept. The result depends on the adapter, the samples and the seed alone: at
// every step of a run noise and levels are the same.
func (t *trainer) validate(ctx context.Context, source port.Source) (loss, zero float64, err error) {
	if t.ema != nil {
		t.swapAverage()
		defer t.restoreValues()
	}
	for i := range t.validation {
		if err := t.validateSample(ctx, source, i); err != nil {
			return 0, 0, fmt.Errorf("validation sample %d: %w", i+1, err)
		}
	}
	n := t.probe.device.Size()
	t.compute.Copy(gpu.Region{Buf: t.probe.host, Len: n}, gpu.Region{Buf: t.probe.device, Len: n})
	if err := t.compute.Record().Await(ctx); err != nil {
		return 0, 0, err
	}
	at := func(x tensor.Tensor) []float32 {
		return tensor.New(t.probe.host, x.Off, tensor.F32, x.Len()).Float32s()
	}
	return mean(at(t.probe.loss)), mean(at(t.probe.zero)), nil
}

func (t *trainer) validateSample(ctx context.Context, source port.Source, i int) error {
	b, err := source.LoadValidation(ctx, i)
	if err != nil {
		return err
	}
	for k, sigma := range validationSigmas {
		d, err := t.probe.draws.validation(ctx, t.seed, k, sigma, b)
		if err != nil {
			return err
		}
		n := i*len(validationSigmas) + k
		if err := t.forward(b, d, element(t.probe.loss, n), element(t.probe.zero, n)); err != nil {
			return err
		}
		d.release(t.compute.Record())
	}
	b.Release(t.compute.Record())
	return nil
}

// forward queues the loss of a batch's prediction, and that of predicting zero.
func (t *trainer) forward(b *port.Batch, d *draw, loss, zero tensor.Tensor) error {
	c := t.ctx
	defer c.Scope()()
	t.await(b, d)
	xt, target := t.mix(b, d)
	image, _ := b.Shape.Tokens()
	pred := c.New(b.Shape.B, image, t.plan.model.OutChannels)
	t.model.PlanForward()
	if err := t.model.Forward(c, t.input(b, xt, d.sigma), pred); err != nil {
		return err
	}
	v := pred
	if c.Act != tensor.F32 {
		v = c.NewF32(pred.Shape...)
		c.Run(ops.Cast{Y: v, X: pred})
	}
	measure := ops.FlowLoss{Loss: loss, Samples: c.NewF32(b.Shape.B), V: v, Target: target, Weight: d.weight}
	c.Run(measure, ops.Zero{Y: v})
	measure.Loss = zero
	c.Run(measure)
	return nil
}

// swapAverage puts the moving average, rounded to their type, in the place of the
// adapter's values, which wait where the gradients are between two steps.
func (t *trainer) swapAverage() {
	for i, b := range t.set.Blocks() {
		if len(b.Params) > 0 {
			t.compute.Copy(b.Grads.Region(), b.Values.Region())
			t.ctx.Run(ops.Cast{Y: b.Values, X: t.ema.Block(i)})
		}
	}
}

func (t *trainer) restoreValues() {
	for _, b := range t.set.Blocks() {
		if len(b.Params) > 0 {
			t.compute.Copy(b.Values.Region(), b.Grads.Region())
		}
	}
}

func element(t tensor.Tensor, i int) tensor.Tensor {
	return tensor.New(t.Buf, t.Off+int64(i*t.DType.Size()), t.DType, 1)
}

func mean(xs []float32) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += float64(x)
	}
	return sum / float64(len(xs))
}
