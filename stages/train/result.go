package train

import (
	"context"
	"errors"
	"fmt"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/optim"
)

// result is what the device found out in a step.
type result struct {
	step    int       // completed steps, this one included
	losses  []float32 // of its micro-batches
	norm    float64   // of the gradients, before clipping
	skipped bool      // the flag was raised: something was not finite
	taken   int       // updates of the whole run
	lr      float64
}

// loss returns the mean of the micro-batches' losses.
func (r result) loss() float64 {
	sum := 0.0
	for _, l := range r.losses {
		sum += float64(l)
	}
	return sum / float64(len(r.losses))
}

// board holds the scalars of a step on the device, and copies of the last two
// steps' on the host, so that the host can queue a step while it waits for the
// one before.
type board struct {
	stream gpu.Stream
	device gpu.Buffer
	losses tensor.Tensor // f32 [gradient accumulation]
	flag   tensor.Tensor // i32 [1]
	norms  tensor.Tensor // f32, of optim.Clip
	taken  tensor.Tensor // i32 [1], of optim.Optimizer
	hosts  [2]gpu.Buffer
	next   int
	queue  []posted // at most one for each of hosts
}

// posted is a step whose scalars are on their way.
type posted struct {
	result
	host  gpu.Buffer
	there gpu.Event
}

func newBoard(dev gpu.Device, stream gpu.Stream, micros int, norms, taken tensor.Tensor) (*board, error) {
	b := &board{stream: stream, norms: norms, taken: taken}
	var err error
	if b.device, err = dev.Alloc(int64(4*micros + 4)); err != nil {
		return nil, fmt.Errorf("scalars of a step: %w", err)
	}
	b.losses = tensor.New(b.device, 0, tensor.F32, micros)
	b.flag = tensor.New(b.device, b.losses.Bytes(), tensor.I32, 1)
	for i := range b.hosts {
		if b.hosts[i], err = dev.AllocHost(b.size()); err != nil {
			return nil, errors.Join(fmt.Errorf("scalars of a step: %w", err), b.close())
		}
	}
	return b, nil
}

// sources are the device's scalars in the order in which they lie on the host.
func (b *board) sources() []tensor.Tensor { return []tensor.Tensor{b.losses, b.flag, b.norms, b.taken} }

func (b *board) size() (n int64) {
	for _, t := range b.sources() {
		n += t.Bytes()
	}
	return n
}

// start lowers the flag for a new step.
func (b *board) start(c *ops.Ctx) { c.Run(ops.Zero{Y: b.flag}) }

// loss is where micro-batch i leaves its loss, f32 [1].
func (b *board) loss(i int) tensor.Tensor {
	return tensor.New(b.losses.Buf, b.losses.Off+int64(4*i), tensor.F32, 1)
}

// post queues the end of a step: its scalars go to the host. At most two steps
// may be posted and not read.
func (b *board) post(step int, lr float64) {
	host := b.hosts[b.next]
	b.next = (b.next + 1) % len(b.hosts)
	var off int64
	for _, t := range b.sources() {
		b.stream.Copy(gpu.Region{Buf: host, Off: off, Len: t.Bytes()}, t.Region())
		off += t.Bytes()
	}
	b.queue = append(b.queue, posted{result: result{step: step, lr: lr}, host: host, there: b.stream.Record()})
}

// waiting returns the number of steps posted and not read.
func (b *board) waiting() int { return len(b.queue) }

// read waits for the oldest posted step and returns what it found out.
func (b *board) read(ctx context.Context) (result, error) {
	p := b.queue[0]
	if err := p.there.Await(ctx); err != nil {
		return result{}, err
	}
	b.queue = b.queue[1:]
	var off int64
	take := func(t tensor.Tensor) tensor.Tensor {
		h := tensor.New(p.host, off, t.DType, t.Shape...)
		off += t.Bytes()
		return h
	}
	r := p.result
	r.losses = append(r.losses, take(b.losses).Float32s()...)
	r.skipped = tensor.Host[int32](take(b.flag))[0] != 0
	r.norm = optim.Total(take(b.norms).Float32s())
	r.taken = int(tensor.Host[int32](take(b.taken))[0])
	return r, nil
}

// close frees the memory. Calling it twice is allowed.
func (b *board) close() error {
	var errs []error
	for _, buf := range []gpu.Buffer{b.device, b.hosts[0], b.hosts[1]} {
		if buf != nil {
			errs = append(errs, buf.Free())
		}
	}
	return errors.Join(errs...)
}
