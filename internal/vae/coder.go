package vae

import (
	"context"
	"errors"
	"fmt"
	"math"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// coder is what both halves share: weights, workspace, and the way in and out.
type coder struct {
	cfg    Config
	dev    gpu.Device
	tile   int
	stream gpu.Stream
	net    net

	mean, std tensor.Tensor // f32 [token channels]

	params gpu.Buffer // the weights
	work   gpu.Buffer // workspace, as large as the largest size so far needed
	host   gpu.Buffer // what goes in and comes out
}

// load reads the weights that a half needs into one buffer.
func (c *coder) load(ctx context.Context, f *Files, wanted func(name string) bool) error {
	layout := f.layout(wanted)
	bytes := layout.Peak()
	var err error
	if c.stream, err = c.dev.NewStream("autoencoder"); err != nil {
		return err
	}
	if c.params, err = c.dev.Alloc(bytes); err != nil {
		return err
	}
	host, err := c.dev.AllocHost(bytes)
	if err != nil {
		return err
	}
	defer host.Free()
	c.net = net{groups: c.cfg.Groups, weights: map[string]tensor.Tensor{}}
	for _, name := range f.bound.Names() {
		t, ok := layout.tensors[name]
		if !ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		values := tensor.New(host, t.Off, tensor.F32, t.Shape...).Float32s()
		if err := f.read(values, name); err != nil {
			return err
		}
		if name == runningVar {
			for i, v := range values {
				if v < 0 {
					return f.bound.Weight(name).Errorf(i, "value %d is %v, which is no variance: the file is damaged, download it again", i, v)
				}
				values[i] = float32(math.Sqrt(float64(v) + c.cfg.BatchNormEps))
			}
		}
		c.net.weights[name] = tensor.New(c.params, t.Off, tensor.F32, t.Shape...)
	}
	c.mean, c.std = c.net.weights[runningMean], c.net.weights[runningVar]
	c.stream.Copy(gpu.Region{Buf: c.params, Len: bytes}, gpu.Region{Buf: host, Len: bytes})
	return c.stream.Sync()
}

// layout is where the weights of a half lie in their buffer.
type layout struct {
	*tensor.Arena
	tensors map[string]tensor.Tensor
}

func (f *Files) layout(wanted func(name string) bool) layout {
	l := layout{tensor.MeasuringArena(), map[string]tensor.Tensor{}}
	for _, name := range f.bound.Names() {
		if wanted(name) {
			l.tensors[name] = l.New(tensor.F32, f.bound.Weight(name).Shape...)
		}
	}
	return l
}

// read reads a weight, and refuses one with a value that is no number.
func (f *Files) read(dst []float32, name string) error {
	w := f.bound.Weight(name)
	if err := w.Floats(dst, 0); err != nil {
		return err
	}
	for i, v := range dst {
		if v-v != 0 {
			return w.Errorf(i/w.Cols(), "value %d is %v: the file is damaged, download it again", i, v)
		}
	}
	return nil
}

// begin returns a net on the workspace, which is made large enough for a dry
// run of the same work.
func (c *coder) begin(dry func(n *net)) (*net, error) {
	need := workspace(c.net, dry)
	if c.work == nil || c.work.Size() < need {
		if c.work != nil {
			if err := c.work.Free(); err != nil {
				return nil, err
			}
			c.work = nil
		}
		var err error
		if c.work, err = c.dev.Alloc(need); err != nil {
			return nil, fmt.Errorf("autoencoder workspace: %w", err)
		}
	}
	n := c.net
	n.Ctx = &ops.Ctx{Stream: c.stream, Arena: tensor.NewArena(c.work, c.stream.Fail), Act: tensor.F32}
	return &n, nil
}

// workspace returns the bytes that work takes.
func workspace(n net, work func(n *net)) int64 {
	st, _ := gpu.NewDiscard().NewStream("plan") // a Discard never fails
	arena := tensor.MeasuringArena()
	n.Ctx, n.tap = &ops.Ctx{Stream: st, Arena: arena, Act: tensor.F32}, nil
	work(&n)
	return arena.Peak()
}

// upload brings a plane to the device.
func (c *coder) upload(n *net, p plane) (tensor.Tensor, error) {
	t := n.New(1, p.c, p.h, p.w)
	host, err := c.staging(t)
	if err != nil {
		return t, err
	}
	copy(host.Float32s(), p.data)
	c.stream.Copy(t.Region(), host.Region())
	return t, c.stream.Sync()
}

// download brings an activation [1, C, H, W] to the host.
func (c *coder) download(t tensor.Tensor) (plane, error) {
	host, err := c.staging(t)
	if err != nil {
		return plane{}, err
	}
	c.stream.Copy(host.Region(), t.Region())
	if err := c.stream.Sync(); err != nil {
		return plane{}, err
	}
	p := newPlane(t.Shape[1], t.Shape[2], t.Shape[3])
	copy(p.data, host.Float32s())
	return p, nil
}

// staging returns pinned memory of t's shape. Nothing else may be using it.
func (c *coder) staging(t tensor.Tensor) (tensor.Tensor, error) {
	if c.host == nil || c.host.Size() < t.Bytes() {
		if c.host != nil {
			if err := c.host.Free(); err != nil {
				return tensor.Tensor{}, err
			}
			c.host = nil
		}
		var err error
		if c.host, err = c.dev.AllocHost(t.Bytes()); err != nil {
			return tensor.Tensor{}, err
		}
	}
	return tensor.New(c.host, 0, tensor.F32, t.Shape...), nil
}

// Close frees the memory. Calling it twice is allowed.
func (c *coder) Close() error {
	var errs []error
	if c.stream != nil {
		errs = append(errs, c.stream.Close())
	}
	for _, b := range []gpu.Buffer{c.params, c.work, c.host} {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	c.stream, c.params, c.work, c.host = nil, nil, nil, nil
	return errors.Join(errs...)
}
