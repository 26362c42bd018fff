package train

import (
	"context"
	"errors"
	"fmt"

	"longship/gpu"
	"longship/gpu/profile"
	"longship/gpu/tensor"
	"longship/internal/flow"
	"longship/internal/rng"
	"longship/stages/port"
)

// draw is what a pass over a batch adds to it: noise, and how strong it is.
type draw struct {
	noise  tensor.Tensor // f32 [B, H·W, C]: ε
	sigma  tensor.Tensor // f32 [B]: x_t = (1−σ)·x₀ + σ·ε
	weight tensor.Tensor // f32 [B]: of each item's squared error
	ready  gpu.Event     // reached when the tensors are filled

	slot *drawSlot
}

// release gives the memory back once `after` is reached.
func (d *draw) release(after gpu.Event) { d.slot.after = after }

// drawSlot is memory for one draw: pinned host memory that is filled by the
// host, and device memory that it is copied to.
type drawSlot struct {
	host, device gpu.Buffer
	copied       gpu.Event // the last copy out of host is done
	after        gpu.Event // the last work that read device is done
}

// drawer makes draws, in turn in two slots: one is read by the pass at work
// while the next is filled. So of its draws at most one may not be released yet
// when another is made. Noise is drawn on the host, so that every device sees the
// same bits, and copied on a stream of its own.
type drawer struct {
	stream   gpu.Stream
	lane     *profile.Lane // nil where it is not measured
	channels int
	slots    [2]*drawSlot
	next     int
}

// newDrawer takes memory for the largest of the shapes; name is the stream's.
func newDrawer(dev gpu.Device, name string, shapes []port.Shape, channels int) (*drawer, error) {
	d := &drawer{channels: channels, slots: [2]*drawSlot{{}, {}}}
	var bytes int64
	for _, sh := range shapes {
		_, n := d.layout(nil, sh)
		bytes = max(bytes, n)
	}
	var err error
	if d.stream, err = dev.NewStream(name); err != nil {
		return nil, err
	}
	for _, s := range d.slots {
		if s.host, err = dev.AllocHost(bytes); err != nil {
			return nil, errors.Join(fmt.Errorf("staging memory of noise: %w", err), d.close())
		}
		if s.device, err = dev.Alloc(bytes); err != nil {
			return nil, errors.Join(fmt.Errorf("memory of noise: %w", err), d.close())
		}
	}
	return d, nil
}

// layout places a draw in buf and returns the bytes it takes.
func (d *drawer) layout(buf gpu.Buffer, sh port.Shape) (draw, int64) {
	var off int64
	take := func(shape ...int) tensor.Tensor {
		t := tensor.New(buf, off, tensor.F32, shape...)
		off += (t.Bytes() + tensor.Align - 1) / tensor.Align * tensor.Align
		return t
	}
	image, _ := sh.Tokens()
	return draw{noise: take(sh.B, image, d.channels), sigma: take(sh.B), weight: take(sh.B)}, off
}

// fill makes a draw for a batch of shape sh: item sets the noise of item b and
// returns its σ and weight.
func (d *drawer) fill(ctx context.Context, sh port.Shape, item func(b int, noise []float32) (sigma, weight float64)) (*draw, error) {
	slot := d.slots[d.next]
	d.next = (d.next + 1) % len(d.slots)
	if slot.copied != nil {
		if err := slot.copied.Await(ctx); err != nil {
			return nil, err
		}
	}
	host, n := d.layout(slot.host, sh)
	noise, sigma, weight := host.noise.Float32s(), host.sigma.Float32s(), host.weight.Float32s()
	per := len(noise) / sh.B
	for b := range sh.B {
		s, w := item(b, noise[b*per:(b+1)*per])
		sigma[b], weight[b] = float32(s), float32(w)
	}
	if slot.after != nil {
		d.stream.Wait(slot.after)
	}
	d.lane.Copy("noise", n, func() {
		d.stream.Copy(gpu.Region{Buf: slot.device, Len: n}, gpu.Region{Buf: slot.host, Len: n})
	})
	slot.copied = d.stream.Record()
	on, _ := d.layout(slot.device, sh)
	on.ready, on.slot = slot.copied, slot
	return &on, nil
}

// training draws for micro-batch `micro` of the step after `step` completed
// ones: noise and level of an item depend on the seed, step, micro-batch, its
// place and its sample alone.
func (d *drawer) training(ctx context.Context, ts flow.Timesteps, seed uint64, step, micro int, b *port.Batch) (*draw, error) {
	tokens, _ := b.Shape.Tokens()
	return d.fill(ctx, b.Shape, func(i int, noise []float32) (sigma, weight float64) {
		it := b.Items[i]
		rng.New(seed, "train/noise", step, micro, i, it.ID).FillNormal(noise, 0)
		level := ts.Draw(seed, step, micro, i, it.ID, tokens)
		return level.Sigma, level.Weight * it.Weight
	})
}

// validation draws for a validation batch at one noise level: the same at every
// step of the run.
func (d *drawer) validation(ctx context.Context, seed uint64, level int, sigma float64, b *port.Batch) (*draw, error) {
	return d.fill(ctx, b.Shape, func(i int, noise []float32) (float64, float64) {
		rng.New(seed, "validation/noise", level, b.Items[i].ID).FillNormal(noise, 0)
		return sigma, 1
	})
}

// close frees everything. Calling it twice is allowed. A failure of the stream
// has reached whoever waited for a draw.
func (d *drawer) close() error {
	var errs []error
	_ = d.stream.Close()
	for _, s := range d.slots {
		for _, b := range []gpu.Buffer{s.host, s.device} {
			if b != nil {
				errs = append(errs, b.Free())
			}
		}
	}
	return errors.Join(errs...)
}
