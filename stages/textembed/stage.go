package textembed

import (
	"context"
	"errors"
	"fmt"

	"longship/cache"
	"longship/internal/cachefill"
	"longship/internal/device"
	"longship/internal/hostmem"
	"longship/internal/modelpath"
	"longship/pipeline"
	"longship/stages/port"
)

// Factory makes the stage.
func Factory() pipeline.Factory {
	return pipeline.Factory{
		Type:    "textembed",
		Summary: "encodes captions with the text tower into the cache, then unloads it",
		Default: func() any { return Default() },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			s := &stage{set: set, cfg: cfg.(*Config), in: pipeline.NewIn[port.Sample]("samples")}
			s.out = pipeline.NewOut[port.Sample]("encoded", pipeline.Forwards(s.in), pipeline.Adds("text"))
			return s, nil
		},
	}
}

type stage struct {
	set pipeline.Settings
	cfg *Config
	in  *pipeline.In[port.Sample]
	out *pipeline.Out[port.Sample]
}

// source is a text tower that has been found but not loaded.
type source struct {
	keys  keys
	open  func(ctx context.Context) (encoder, error)
	close func() error
}

func (s *stage) Ports() []pipeline.Port { return []pipeline.Port{s.in, s.out} }

// Run first takes all samples, which are small, and then encodes: while it
// holds a lease on the card it waits for nobody, so stages that take turns on
// a small card cannot wait for each other.
func (s *stage) Run(ctx context.Context) error {
	store, err := cache.Shared(ctx, s.set.Env, string(s.cfg.Cache))
	if err != nil {
		return err
	}
	samples, err := port.Collect(ctx, s.set, s.in)
	if err != nil || len(samples) == 0 {
		return err
	}
	src, err := s.findTower(ctx, store)
	if err != nil {
		return err
	}
	captions, of := listCaptions(samples)
	w := work{store: store, keys: src.keys, batch: s.cfg.Batch, open: src.open, stopped: s.set.Env.Stopped}
	w.progress = s.set.Meter(ctx, "captions")
	refs, n, err := w.run(ctx, captions)
	s.set.Summarise("text embeddings encoded", n.encoded)
	s.set.Summarise("text embeddings found in the cache", n.hits)
	if err := errors.Join(err, src.close()); errors.Is(err, errStopped) {
		return nil
	} else if err != nil {
		return err
	}
	for i := range samples {
		sample := &samples[i]
		sample.Text, sample.TextTokens, sample.TextCache = refs[of[i].caption], src.keys.shape[0], store.Dir()
		if sample.Dropout > 0 {
			sample.TextDropped = refs[of[i].dropped]
		}
	}
	if err := port.PutSamples(ctx, store, s.set.Env.Name+"/"+s.set.ID, samples); err != nil {
		return err
	}
	return port.SendAll(ctx, s.out, samples)
}

// places are where a sample's captions stand in the list; dropped only where
// its captions are dropped at times.
type places struct{ caption, dropped int }

// listCaptions returns the different captions of samples, in order.
func listCaptions(samples []port.Sample) (captions []string, of []places) {
	at := map[string]int{}
	place := func(caption string) int {
		i, ok := at[caption]
		if !ok {
			i = len(captions)
			at[caption] = i
			captions = append(captions, caption)
		}
		return i
	}
	of = make([]places, len(samples))
	for i, s := range samples {
		of[i].caption = place(s.Caption)
		if s.Dropout > 0 {
			of[i].dropped = place(s.Dropped)
		}
	}
	return captions, of
}

// Check opens the device, finds tower and tokenizer, and looks at configs and headers.
func (s *stage) Check(ctx context.Context) error {
	_, _, err := device.Open(ctx, s.set.Env)
	m, err2 := s.openModel()
	if err2 == nil {
		err2 = m.files.Close()
	}
	return errors.Join(err, err2, cachefill.Check(s.cfg.Cache))
}

// openModel finds tower and tokenizer of the run's model.
func (s *stage) openModel() (*model, error) {
	opt, err := s.options()
	if err != nil {
		return nil, err
	}
	return openModel(opt)
}

// options returns the stage's options for the run's model.
func (s *stage) options() (Options, error) {
	folder, err := modelpath.TextEncoder(s.set.Env.Model)
	tokenizer, err2 := modelpath.Tokenizer(s.set.Env.Model)
	return Options{
		TextEncoder: folder, Tokenizer: tokenizer, QType: s.cfg.QType, Offload: s.cfg.Offload, Layers: s.cfg.Layers,
		MaxLength: s.cfg.MaxLength, Precision: s.cfg.Precision, Batch: s.cfg.Batch,
	}, errors.Join(err, err2)
}

// findTower finds the text tower and the keys of what it makes.
func (s *stage) findTower(ctx context.Context, store *cache.Store) (source, error) {
	m, err := s.openModel()
	if err != nil {
		return source{}, err
	}
	wait, cancel := s.set.Env.UntilStopped(ctx)
	defer cancel()
	ks, err := newKeys(wait, store, m.files, m.prompts, m.opt)
	if err != nil {
		return source{}, errors.Join(err, m.files.Close())
	}
	return source{keys: ks, open: func(ctx context.Context) (encoder, error) { return s.lease(ctx, m) }, close: m.files.Close}, nil
}

// lease takes the tower's whole share of the card and loads it.
func (s *stage) lease(ctx context.Context, m *model) (encoder, error) {
	dev, budget, err := device.Open(ctx, s.set.Env)
	if err != nil {
		return nil, err
	}
	bytes, err := m.files.DeviceBytes(dev.Info(), m.towerOptions(nil))
	if err != nil {
		return nil, err
	}
	wait, cancel := s.set.Env.UntilStopped(ctx)
	defer cancel()
	release, err := budget.Acquire(wait, s.set.ID, bytes)
	if err != nil {
		return nil, err
	}
	before := hostmem.Release()
	long := 0
	m.tooLong = func(caption string, cut int) {
		if long++; long > longShown {
			return
		}
		s.set.Log.Warn("caption is too long: its end is cut off; raise max_length or shorten it", "caption", caption, "tokens_cut", cut, "max_length", m.opt.MaxLength)
	}
	enc, err := m.load(wait, dev, func(done, total int64) {
		s.set.Progress(ctx, int(done), int(total), "bytes of text encoder")
	})
	if err != nil {
		release()
		return nil, err
	}
	s.set.Log.Info("text encoder loaded", "kind", m.files.Family.Name, "qtype", m.opt.QType, "device", dev.Info().Name)
	return &leased{enc, func() {
		after := hostmem.Release()
		s.set.Log.Info("text encoder unloaded", "host_mib_before", before>>20, "host_mib_after", after>>20)
		if long > 0 {
			s.set.Summarise("captions cut to max_length", long)
		}
		s.set.Summarise("host memory before and after the text encoder", fmt.Sprintf("%d MiB, %d MiB", before>>20, after>>20))
		release() // last: who waits for the card loads as soon as it may
	}}, nil
}

// longShown is how many captions that are too long are named; the summary counts all.
const longShown = 5

// leased is an encoder that gives its lease back when it is closed.
type leased struct {
	encoder
	release func()
}

func (l *leased) Close() error {
	defer l.release()
	return l.encoder.Close()
}
