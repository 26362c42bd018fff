package prefetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"longship/cache"
	"longship/gpu"
	"longship/gpu/memory"
	"longship/internal/cachefill"
	"longship/internal/device"
	"longship/internal/flux2"
	"longship/internal/hostmem"
	"longship/internal/rng"
	"longship/internal/runstate"
	"longship/pipeline"
	"longship/stages/port"
)

// stagedAhead is how many batches wait between prefetch and train, beside the
// one that prefetch fills and the one that train works on.
const stagedAhead = 1

// Factory makes the stage.
func Factory() pipeline.Factory {
	return pipeline.Factory{
		Type:    "prefetch",
		Summary: "joins samples into batches and brings batches and weights to the device ahead of the step",
		Default: func() any { return Default() },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			return &stage{
				set: set, cfg: *cfg.(*Config),
				samples: pipeline.NewIn[port.Sample]("samples", pipeline.Needs("latent", "text")),
				weights: pipeline.NewIn[*memory.WeightSet]("weights", pipeline.Single()),
				batches: pipeline.NewOut[*port.Batch]("batches", pipeline.Capacity(stagedAhead)),
			}, nil
		},
	}
}

type stage struct {
	set     pipeline.Settings
	cfg     Config
	samples *pipeline.In[port.Sample]
	weights *pipeline.In[*memory.WeightSet]
	batches *pipeline.Out[*port.Batch]

	closers []func() error
}

func (s *stage) Ports() []pipeline.Port { return []pipeline.Port{s.samples, s.weights, s.batches} }

// Run waits for every sample and the weights, then serves batches until train
// takes no more.
func (s *stage) Run(ctx context.Context) error {
	train, validation, err := s.drain(ctx)
	if err != nil {
		return err
	}
	set, err := s.weights.Recv(ctx)
	if err != nil {
		if errors.Is(err, io.EOF) && s.set.Env.Stopped() {
			return nil
		}
		return fmt.Errorf("receive weights: %w", err)
	}
	s.onClose(set.Close)
	if s.set.Env.Stopped() || s.unwanted() {
		return nil
	}
	if both := overlap(train, validation); len(both) > 0 {
		s.set.Log.Warn("images are trained on and measured as validation too", "images", len(both), "first", both[0])
	}
	if len(train) == 0 {
		return fmt.Errorf("no sample to train on: the dataset gave %d, all for validation", len(validation))
	}
	resume, err := runstate.Shared(ctx, s.set.Env)
	if err != nil {
		return err
	}
	src, st, slots, err := s.prepare(ctx, set, train, validation)
	if err != nil || s.set.Env.Stopped() {
		return err
	}
	return s.serve(ctx, src, st, slots, newOrder(s.set.Env.Seed, train, s.cfg.BatchSize), resume.MicroBatches())
}

// unwanted says whether train takes no batch: the run is finished.
func (s *stage) unwanted() bool {
	select {
	case <-s.batches.Done():
		return true
	default:
		return false
	}
}

// drain takes all samples.
func (s *stage) drain(ctx context.Context) (train, validation []*port.Sample, err error) {
	seen := map[string]bool{}
	for {
		sample, err := s.samples.Recv(ctx)
		if errors.Is(err, io.EOF) {
			return train, validation, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if seen[sample.ID] {
			return nil, nil, fmt.Errorf("sample %s comes twice: it is in two of the sources; give their datasets different ids", sample.ID)
		}
		seen[sample.ID] = true
		if sample.Validation {
			validation = append(validation, &sample)
		} else {
			train = append(train, &sample)
		}
	}
}

// prepare takes the device and loads everything that stays for the whole run.
func (s *stage) prepare(ctx context.Context, set *memory.WeightSet, train, validation []*port.Sample) (*source, *stager, []*slot, error) {
	fail := func(err error) (*source, *stager, []*slot, error) { return nil, nil, nil, err }
	ctx, cancel := s.set.Env.UntilStopped(ctx)
	defer cancel()
	cfg, err := flux2.ParseConfig(set.Config)
	if err != nil {
		return fail(err)
	}
	w := widths{latent: cfg.InChannels, text: cfg.TextDim}
	all := append(append([]*port.Sample{}, train...), validation...)
	if err := w.fit(all); err != nil {
		return fail(err)
	}
	stores, err := s.openCaches(ctx, all)
	if err != nil {
		return fail(err)
	}
	if err := present(ctx, stores, all); err != nil {
		return fail(err)
	}
	dev, budget, err := device.Open(ctx, s.set.Env)
	if err != nil {
		return fail(err)
	}
	// Everything from here to the end of the run is this stage's and train's:
	// the lease is for the whole card.
	release, err := budget.Acquire(ctx, s.set.ID, budget.Total())
	if err != nil {
		return fail(err)
	}
	s.onClose(func() error { release(); return nil })

	src := &source{dev: dev, set: set, validation: validation, dataset: datasetOf(train),
		shapes: shapesOf(train, validation, s.cfg.BatchSize)}
	var bytes int64
	for _, sh := range src.shapes {
		bytes = max(bytes, layoutOf(nil, sh, w).bytes)
	}
	slots := make([]*slot, stagedAhead+3)
	for i := range slots {
		if slots[i], err = newSlot(dev, bytes); err != nil {
			return fail(err)
		}
		s.onClose(slots[i].close)
	}
	src.slot, slots = slots[0], slots[1:]
	// Made behind the slots, and so closed before them: copies that are queued
	// when a run ends still write there.
	stream := func(name string) (*stager, error) {
		st, err := dev.NewStream(name)
		if err != nil {
			return nil, err
		}
		s.onClose(st.Close)
		return &stager{stores: stores, stream: st, widths: w}, nil
	}
	st, err := stream("inputs")
	if err != nil {
		return fail(err)
	}
	if src.stager, err = stream("validation inputs"); err != nil {
		return fail(err)
	}
	batches := int64(len(slots)+1) * bytes
	if src.room = budget.Total(); src.room != math.MaxInt64 {
		src.room -= batches
	}
	src.load = func(ctx context.Context, taken int64) (*memory.Streamer, error) {
		return s.load(ctx, dev, set, budget, batches, taken)
	}
	return src, st, slots, nil
}

func (s *stage) openCaches(ctx context.Context, samples []*port.Sample) (map[string]*cache.Store, error) {
	stores := map[string]*cache.Store{}
	for _, sample := range samples {
		for _, dir := range []string{sample.LatentCache, sample.TextCache} {
			if _, ok := stores[dir]; ok {
				continue
			}
			store, err := cache.Shared(ctx, s.set.Env, dir)
			if err != nil {
				return nil, err
			}
			stores[dir] = store
		}
	}
	return stores, nil
}

// present says whether all tensors of the samples are in their caches: that one
// is missing is better known before the first step than at the step that needs it.
func present(ctx context.Context, stores map[string]*cache.Store, samples []*port.Sample) error {
	refs := map[string][]cache.Ref{}
	of := map[string][]string{} // ids of the samples, beside refs
	for _, s := range samples {
		add := func(folder string, ref cache.Ref) {
			if !ref.IsZero() {
				refs[folder], of[folder] = append(refs[folder], ref), append(of[folder], s.ID)
			}
		}
		add(s.LatentCache, s.Latent)
		for _, r := range s.References {
			add(s.LatentCache, r.Latent)
		}
		add(s.TextCache, s.Text)
		add(s.TextCache, s.TextDropped)
	}
	for folder, list := range refs {
		missing, err := cachefill.Missing(ctx, stores[folder], list)
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			i := missing[0]
			return fmt.Errorf("%d tensors are not in cache %s any more, the first is %s of sample %s: let latents and textembed make them again", len(missing), folder, list[i], of[folder][i])
		}
	}
	return nil
}

// load brings the weights to the device and into pinned memory, beside the
// bytes of the budget that the batches and train take. It runs on train's goroutine, while this
// stage does nothing but serve batches.
func (s *stage) load(ctx context.Context, dev gpu.Device, set *memory.WeightSet, budget *gpu.Budget, batches, trains int64) (*memory.Streamer, error) {
	taken := batches + trains
	ctx, cancel := s.set.Env.UntilStopped(ctx)
	defer cancel()
	streamed, err := s.residency(set, budget, taken)
	if err != nil {
		return nil, err
	}
	part, all := memory.Streamed(set.Units, streamed)
	if set.File != nil || set.Fill != nil { // there are bytes to be held
		if available, ok := hostmem.Available(); ok {
			if err := holds(part, available); err != nil {
				return nil, err
			}
		}
	}
	units := make([]memory.Unit, 0, len(set.Units)) // resident
	for i, u := range set.Units {
		if !streamed[i] {
			units = append(units, u)
		}
	}
	resident := memory.Footprint(memory.Unit{}, units, make([]bool, len(units)), 0)
	s.set.Env.Emit(ctx, pipeline.Event{Event: "placed", Stage: s.set.ID, Data: map[string]any{
		"outer": set.Outer.Bytes, "resident": resident, "streamed": part, "batches": batches, "train": trains,
		"ring": memory.Footprint(memory.Unit{}, set.Units, streamed, s.cfg.Ring) - resident,
	}})
	start := time.Now()
	streamer, err := memory.NewStreamer(ctx, dev, set, memory.Options{
		Streamed: streamed, Slots: s.cfg.Ring,
		Progress: s.set.Meter(ctx, "bytes of weights"),
	})
	if err != nil {
		return nil, err
	}
	s.onClose(streamer.Close)
	s.set.Log.Info("weights are in place", "units", len(set.Units), "streamed_mib", part>>20, "of_mib", all>>20,
		"device_mib", (taken+memory.Footprint(set.Outer, set.Units, streamed, s.cfg.Ring))>>20, "seconds", time.Since(start).Seconds())
	s.set.Summarise("streamed", fmt.Sprintf("%.0f %% of %.1f MiB of block weights", 100*float64(part)/float64(max(all, 1)), float64(all)/(1<<20)))
	return streamer, nil
}

// holds says whether page-locked memory of so many bytes can be had: a machine
// that runs short of it swaps, or ends the program.
func holds(pinned, available int64) error {
	if pinned <= available {
		return nil
	}
	return fmt.Errorf("the streamed weights need %s of host memory and %s are available: end other programs, or let more stay on the card (a higher vram, a smaller offload): %w",
		mib(pinned), mib(available), gpu.ErrOutOfMemory)
}

// residency says which units are streamed so that they fit into a budget of
// which taken bytes are others'.
func (s *stage) residency(set *memory.WeightSet, budget *gpu.Budget, taken int64) ([]bool, error) {
	share, auto, err := s.cfg.share()
	if err != nil {
		return nil, err
	}
	room := budget.Total() - taken
	streamed, err := memory.Fit(set.Outer, set.Units, s.cfg.Ring, room)
	if none := (*memory.NoRoomError)(nil); errors.As(err, &none) {
		none.Cap = budget.Cap(taken + none.Least)
		return nil, &pipeline.HeadError{Path: "vram", Err: fmt.Errorf(
			"too little for this run: the smallest that can work is %s; or take a smaller resolution, rank or batch: %w",
			mib(none.Cap), err)}
	}
	if auto || err != nil {
		return streamed, err
	}
	forced := memory.Spread(set.Units, share)
	if need := memory.Footprint(set.Outer, set.Units, forced, s.cfg.Ring); need > room {
		near, err := memory.Nearest(set.Outer, set.Units, s.cfg.Ring, room, share)
		if err != nil { // only less fits: the ring is larger than a few units
			part, all := memory.Streamed(set.Units, streamed)
			near = float64(part) / float64(all)
		}
		return nil, &pipeline.HeadError{Path: "vram", Err: fmt.Errorf(
			"offload %s does not fit: at least %s are needed for it; the nearest share that fits is %.3g",
			s.cfg.Offload, mib(budget.Cap(taken+need)), near)}
	}
	return forced, nil
}

// serve stages batch after batch until train takes no more.
func (s *stage) serve(ctx context.Context, src *source, st *stager, slots []*slot, o *order, from int) error {
	free := make(chan *slot, len(slots))
	for _, sl := range slots {
		free <- sl
	}
	for k := from; ; k++ {
		var sl *slot
		select {
		case sl = <-free:
		case <-s.batches.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		samples := o.batch(k)
		dropped := make([]bool, len(samples))
		for i, sample := range samples {
			dropped[i] = rng.New(s.set.Env.Seed, "caption_dropout", k, i, sample.ID).Float64(0) < sample.Dropout
		}
		b, err := st.stage(ctx, sl, k, samples, dropped)
		if err != nil {
			return err
		}
		b.Source = src
		b.Free = func(after gpu.Event) {
			sl.after = after
			free <- sl
		}
		if err := s.batches.Send(ctx, b); err != nil {
			if errors.Is(err, pipeline.ErrDone) {
				return nil
			}
			return err
		}
	}
}

// mib writes a number of bytes as vram takes it, rounded up.
func mib(bytes int64) string { return fmt.Sprintf("%dMiB", (bytes+1<<20-1)>>20) }

func (s *stage) onClose(fn func() error) { s.closers = append(s.closers, fn) }

// Close frees everything, in reverse order.
func (s *stage) Close() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}
