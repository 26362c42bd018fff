package texttower

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// Options say how a tower is held and run.
type Options struct {
	QType    string  // of the linear weights: bf8, float8, int8, bf16, or none for what the file has
	Offload  float64 // share of the layers' bytes kept in host memory and streamed
	Tokens   int     // tokens of every prompt
	Batch    int     // prompts that go through a layer before the next is fetched
	Progress func(done, total int64)
}

// Tower is a loaded tower.
type Tower struct {
	files  *Files
	opt    Options
	dev    gpu.Device
	stream gpu.Stream
	source *memory.Streamer
	work   gpu.Buffer // the workspace
	host   gpu.Buffer // small things on their way in or out, one prompt's residual stream the largest
	run    *runner
	tap    func(name string, t tensor.Tensor)
}

// Load quantises the layers up to the last one needed, reading them straight
// from the files, several rows at a time. Close gives all memory back, and must
// come before the Files' Close.
func (f *Files) Load(ctx context.Context, dev gpu.Device, opt Options) (*Tower, error) {
	opt = f.fit(dev.Info(), opt)
	t := &Tower{files: f, opt: opt, dev: dev}
	if err := t.load(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("load text encoder: %w", err), t.Close())
	}
	return t, nil
}

// fit drops what an option cannot do on a device: where weights are computed on
// in host memory, streaming them would only copy them, and without streaming
// there is nothing to share between prompts.
func (f *Files) fit(info gpu.Info, opt Options) Options {
	if info.Kind == "cpu" {
		opt.Offload = 0
	}
	if opt.Offload == 0 || opt.Batch < 1 {
		opt.Batch = 1
	}
	return opt
}

func (t *Tower) load(ctx context.Context) error {
	set, err := t.files.weightSet(t.opt.QType)
	if err != nil {
		return err
	}
	t.source, err = memory.NewStreamer(ctx, t.dev, set, memory.Options{
		Streamed: memory.Spread(set.Units, t.opt.Offload), Progress: t.opt.Progress,
	})
	if err != nil {
		return err
	}
	if t.stream, err = t.dev.NewStream("text encoder"); err != nil {
		return err
	}
	t.source.Bind(t.stream)
	work, err := t.files.workBytes(t.opt)
	if err != nil {
		return err
	}
	if t.work, err = t.dev.Alloc(work); err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	c := &ops.Ctx{Stream: t.stream, Arena: tensor.NewArena(t.work, t.stream.Fail), Act: tensor.F32}
	t.run = newRunner(c, t.files, t.opt)
	cfg := t.files.Config
	if t.host, err = t.dev.AllocHost(int64(t.opt.Tokens) * int64(max(cfg.Hidden, cfg.HeadDim)) * 4); err != nil {
		return err
	}
	return t.fillTables()
}

// DeviceBytes returns what Load takes of a device with these options.
func (f *Files) DeviceBytes(info gpu.Info, opt Options) (int64, error) {
	opt = f.fit(info, opt)
	set, err := f.weightSet(opt.QType)
	if err != nil {
		return 0, err
	}
	work, err := f.workBytes(opt)
	if err != nil {
		return 0, err
	}
	streamed := memory.Spread(set.Units, opt.Offload)
	bytes := set.Outer.Bytes + work
	var slot int64
	for i, u := range set.Units {
		if streamed[i] {
			slot = max(slot, u.Bytes)
		} else {
			bytes += u.Bytes
		}
	}
	return bytes + memory.MinSlots*slot, nil
}

// workBytes measures the workspace by a dry run of one layer.
func (f *Files) workBytes(opt Options) (int64, error) {
	st, _ := gpu.NewDiscard().NewStream("plan") // a Discard never fails
	arena := tensor.MeasuringArena()
	r := newRunner(&ops.Ctx{Stream: st, Arena: arena, Act: tensor.F32}, f, opt)
	if f.Depth() > 0 {
		unit, err := f.layerUnit(0, opt.QType)
		if err != nil {
			return 0, err
		}
		r.params = memory.Params{}
		r.params.Bind(unit, nil, 0)
		r.forward(r.streams[0])
	}
	return arena.Peak(), nil
}

// runner is a pass and what lasts from one to the next, taken from the arena
// once: the residual streams of a batch, key ranges and RoPE tables.
type runner struct {
	pass
	streams []tensor.Tensor // f32 [L, H], one a prompt
	ranges  []tensor.Tensor // i32 [1, 2], one a prompt
}

func newRunner(c *ops.Ctx, f *Files, opt Options) *runner {
	r := &runner{pass: pass{
		Ctx: c, cfg: f.Config, qkNorm: f.Family.QKNorm,
		cos: c.NewF32(opt.Tokens, f.Config.HeadDim), sin: c.NewF32(opt.Tokens, f.Config.HeadDim),
	}}
	for range opt.Batch {
		r.streams = append(r.streams, c.NewF32(opt.Tokens, f.Config.Hidden))
		r.ranges = append(r.ranges, c.Arena.New(tensor.I32, 1, 2))
	}
	r.keys = r.ranges[0]
	return r
}

// Encode runs prompts and gives put the rows [Tokens, Width] of each, which it
// must not keep. Prompts go through every layer one by one, each in passes over
// Tokens rows, so that an embedding's bits depend on its own prompt alone.
func (t *Tower) Encode(ctx context.Context, prompts []Prompt, put func(i int, rows []float32) error) error {
	for lo := 0; lo < len(prompts); lo += t.opt.Batch {
		part := prompts[lo:min(lo+t.opt.Batch, len(prompts))]
		out, err := t.encode(ctx, part)
		if err != nil {
			return err
		}
		for i, rows := range out {
			if err := put(lo+i, rows); err != nil {
				return err
			}
		}
	}
	return nil
}

// encode runs at most Batch prompts.
func (t *Tower) encode(ctx context.Context, prompts []Prompt) ([][]float32, error) {
	r, depth := t.run, t.files.Depth()
	r.tap = t.tap
	out := make([][]float32, len(prompts))
	for i, prompt := range prompts {
		if len(prompt.IDs) != t.opt.Tokens {
			return nil, fmt.Errorf("prompt of %d tokens where %d are wanted", len(prompt.IDs), t.opt.Tokens)
		}
		out[i] = make([]float32, t.opt.Tokens*t.files.Width())
		if err := t.embed(i, prompt); err != nil {
			return nil, err
		}
		if err := t.take(out[i], i, 0); err != nil {
			return nil, err
		}
	}
	order := make([]int, depth)
	for n := range order {
		order[n] = n
	}
	t.source.Plan(order...)
	for n := range depth {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var err error
		if r.params, err = t.source.Acquire(n); err != nil {
			return nil, err
		}
		r.layer = n
		for i := range prompts {
			r.keys = r.ranges[i]
			r.forward(r.streams[i])
			if n+1 == t.files.Config.Layers {
				norm := t.source.Outer()[finalNorm].Data
				r.Run(ops.RMSNorm{Y: r.streams[i], X: r.streams[i], W: norm, Eps: float32(r.cfg.Eps)})
			}
		}
		t.source.Release(n)
		for i := range prompts {
			if err := t.take(out[i], i, n+1); err != nil {
				return nil, err
			}
		}
	}
	return out, t.stream.Sync()
}

// embed reads the tokens' rows of the embedding from the file to the device:
// a few hundred rows, where the whole table has a hundred thousand.
func (t *Tower) embed(i int, p Prompt) error {
	table, h := t.files.bound.Weight(embedName), t.files.Config.Hidden
	x := t.run.streams[i]
	host := tensor.New(t.host, 0, tensor.F32, x.Shape...)
	rows := host.Float32s()
	seen := map[int]int{}
	for at, id := range p.IDs {
		if id < 0 || id >= t.files.Config.Vocab {
			return fmt.Errorf("token %d is not among the text encoder's %d: tokenizer and text encoder do not belong together", id, t.files.Config.Vocab)
		}
		row := rows[at*h : (at+1)*h]
		if before, ok := seen[id]; ok {
			copy(row, rows[before*h:(before+1)*h])
			continue
		}
		seen[id] = at
		if err := table.Floats(row, id); err != nil {
			return err
		}
		if i := slices.IndexFunc(row, func(v float32) bool { return v-v != 0 }); i >= 0 {
			return table.Errorf(id, "row %d, of a token in use, holds %v: the file is broken, download it again", id, row[i])
		}
	}
	if err := t.upload(x, host); err != nil {
		return err
	}
	keys := tensor.New(t.host, 0, tensor.I32, 1, 2)
	copy(tensor.Host[int32](keys), []int32{int32(p.First), int32(p.End)})
	return t.upload(t.run.ranges[i], keys)
}

// upload copies host to dst and waits, so that the host's memory is free again.
func (t *Tower) upload(dst, host tensor.Tensor) error {
	t.stream.Copy(dst.Region(), host.Region())
	return t.stream.Sync()
}

// take copies a prompt's residual stream into its embedding if it is one of the
// hidden states that make it: the k-th is columns [k·H, (k+1)·H) of every row.
func (t *Tower) take(out []float32, i, state int) error {
	if !slices.Contains(t.files.Layers, state) {
		return nil
	}
	h, width := t.files.Config.Hidden, t.files.Width()
	host := tensor.New(t.host, 0, tensor.F32, t.opt.Tokens, h)
	if err := t.upload(host, t.run.streams[i]); err != nil {
		return err
	}
	rows := host.Float32s()
	for k, wanted := range t.files.Layers {
		if wanted != state {
			continue
		}
		for at := range t.opt.Tokens {
			copy(out[at*width+k*h:at*width+(k+1)*h], rows[at*h:(at+1)*h])
		}
	}
	return nil
}

// fillTables computes RoPE: token i turns pair j by i·Theta^(-2j/hd), frequency
// and angle in float32 as the reference has them; columns j and j + hd/2 have
// the same angle.
func (t *Tower) fillTables() error {
	hd := t.files.Config.HeadDim
	fill := func(dst tensor.Tensor, of func(float64) float64) error {
		host := tensor.New(t.host, 0, tensor.F32, dst.Shape...)
		table := host.Float32s()
		for j := range hd / 2 {
			frequency := 1 / float32(math.Pow(t.files.Config.Theta, float64(2*j)/float64(hd)))
			for i := range t.opt.Tokens {
				v := float32(of(float64(float32(i) * frequency)))
				table[i*hd+j], table[i*hd+j+hd/2] = v, v
			}
		}
		return t.upload(dst, host)
	}
	return errors.Join(fill(t.run.cos, math.Cos), fill(t.run.sin, math.Sin))
}

// Close frees the tower's memory. Calling it twice is allowed.
func (t *Tower) Close() error {
	var errs []error
	if t.stream != nil {
		errs = append(errs, t.stream.Close())
	}
	if t.source != nil {
		errs = append(errs, t.source.Close())
	}
	for _, b := range []gpu.Buffer{t.work, t.host} {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	t.stream, t.source, t.work, t.host, t.run = nil, nil, nil, nil, nil
	return errors.Join(errs...)
}
