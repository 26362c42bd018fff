package prefetch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"longship/cache"
	"longship/gpu"
	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/embedding"
	"longship/stages/port"
)

// widths are the last dimensions of a batch's tensors.
type widths struct{ latent, text int }

// fit says whether the model can be trained on the samples' tensors.
func (w widths) fit(samples []*port.Sample) error {
	for _, s := range samples {
		if sh := s.Latent.Shape; len(sh) != 3 || sh[0] != w.latent {
			return fmt.Errorf("sample %s: its latent has the shape %v and the transformer takes %d channels: the autoencoder is another model's", s.ID, sh, w.latent)
		}
		if sh := s.Text.Shape; len(sh) != 2 || sh[1] != w.text {
			return fmt.Errorf("sample %s: its text embedding has the shape %v and the transformer takes rows of %d: the text encoder is another model's, or `layers` names too many states or too few", s.ID, sh, w.text)
		}
	}
	return nil
}

// slot is the memory of one staged batch: pinned host memory that is filled
// from the cache, and device memory that it is copied to.
type slot struct {
	host, device gpu.Buffer
	copied       gpu.Event // the last copy out of host is done
	after        gpu.Event // the last work that read device is done
}

// layout is where a batch's tensors lie in a slot.
type layout struct {
	latent, refs, text tensor.Tensor
	bytes              int64
}

func layoutOf(buf gpu.Buffer, sh port.Shape, w widths) layout {
	var l layout
	take := func(rows, cols int) tensor.Tensor {
		if rows == 0 {
			return tensor.Tensor{}
		}
		t := tensor.New(buf, l.bytes, tensor.F32, sh.B, rows, cols)
		l.bytes += (t.Bytes() + tensor.Align - 1) / tensor.Align * tensor.Align
		return t
	}
	image, refs := sh.Tokens()
	l.latent = take(image, w.latent)
	l.refs = take(refs, w.latent)
	l.text = take(sh.L, w.text)
	return l
}

func newSlot(dev gpu.Device, bytes int64) (*slot, error) {
	host, err := dev.AllocHost(bytes)
	if err != nil {
		return nil, fmt.Errorf("staging memory of a batch: %w", err)
	}
	device, err := dev.Alloc(bytes)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("memory of a batch: %w", err), host.Free())
	}
	return &slot{host: host, device: device}, nil
}

func (s *slot) close() error { return errors.Join(s.host.Free(), s.device.Free()) }

// stager fills slots from the cache on one stream.
type stager struct {
	stores map[string]*cache.Store // by folder
	stream gpu.Stream
	widths widths
	raw    []byte    // one stored tensor
	row    []float32 // and as float32
}

// stage fills the slot with a batch of the samples and queues its copy.
func (st *stager) stage(ctx context.Context, s *slot, index int, samples []*port.Sample, dropped []bool) (*port.Batch, error) {
	if s.copied != nil {
		if err := s.copied.Await(ctx); err != nil {
			return nil, err
		}
	}
	shape := shapeOf(samples[0], len(samples))
	host := layoutOf(s.host, shape, st.widths)
	items := make([]port.Item, len(samples))
	for i, sample := range samples {
		items[i] = port.Item{ID: sample.ID, Weight: sample.Weight, Dropped: dropped[i]}
		if err := st.fill(ctx, host, i, sample, dropped[i]); err != nil {
			return nil, fmt.Errorf("sample %s: %w", sample.ID, err)
		}
	}
	if s.after != nil {
		st.stream.Wait(s.after)
	}
	st.stream.Copy(gpu.Region{Buf: s.device, Len: host.bytes}, gpu.Region{Buf: s.host, Len: host.bytes})
	s.copied = st.stream.Record()
	on := layoutOf(s.device, shape, st.widths)
	return &port.Batch{Index: index, Items: items, Shape: shape, Latent: on.latent, Refs: on.refs, Text: on.text, Ready: s.copied}, nil
}

func (st *stager) fill(ctx context.Context, l layout, i int, s *port.Sample, dropped bool) error {
	if err := st.tokens(ctx, s.LatentCache, s.Latent, item(l.latent, i), 0); err != nil {
		return fmt.Errorf("latent: %w", err)
	}
	at := 0
	for k, r := range s.References {
		if err := st.tokens(ctx, s.LatentCache, r.Latent, item(l.refs, i), at); err != nil {
			return fmt.Errorf("reference image %d: latent: %w", k+1, err)
		}
		at += r.Size.H / 16 * (r.Size.W / 16)
	}
	ref := s.Text
	if dropped {
		ref = s.TextDropped
	}
	rows, err := st.load(ctx, s.TextCache, ref)
	if err != nil {
		return fmt.Errorf("text embedding: %w", err)
	}
	return embedding.Expand(item(l.text, i), rows, st.widths.text)
}

// item returns element i of the first dimension of a contiguous tensor.
func item(t tensor.Tensor, i int) []float32 {
	n := t.Len() / t.Shape[0]
	return t.Float32s()[i*n : (i+1)*n]
}

// tokens loads a latent [C, h, w] into dst [tokens, C] from token `at` on.
func (st *stager) tokens(ctx context.Context, folder string, ref cache.Ref, dst []float32, at int) error {
	x, err := st.load(ctx, folder, ref)
	if err != nil {
		return err
	}
	c := st.widths.latent
	n := len(x) / c
	if len(ref.Shape) != 3 || ref.Shape[0] != c || (at+n)*c > len(dst) {
		return fmt.Errorf("shape %v does not fit %d tokens of %d channels", ref.Shape, len(dst)/c-at, c)
	}
	for ch := range c {
		for k, v := range x[ch*n : (ch+1)*n] {
			dst[(at+k)*c+ch] = v
		}
	}
	return nil
}

// load reads a stored tensor as float32; the result is valid until the next load.
func (st *stager) load(ctx context.Context, folder string, ref cache.Ref) ([]float32, error) {
	store, ok := st.stores[folder]
	if !ok {
		return nil, fmt.Errorf("its cache folder %q is not open", folder)
	}
	var err error
	if st.raw, err = store.Get(ctx, ref, st.raw[:0]); err != nil {
		return nil, fmt.Errorf("cache %s: %w", folder, err)
	}
	switch ref.DType {
	case "f32":
		return dtype.View[float32](st.raw), nil
	case "bf16":
		st.row = slices.Grow(st.row[:0], len(st.raw)/2)[:len(st.raw)/2]
		dtype.BF16ToF32(st.row, dtype.View[uint16](st.raw))
		return st.row, nil
	}
	return nil, fmt.Errorf("cache %s: a tensor of type %q cannot be trained on", folder, ref.DType)
}
