package latents

import (
	"context"
	"errors"

	"longship/cache"
	"longship/internal/cachefill"
	"longship/internal/device"
	"longship/internal/hostmem"
	"longship/internal/modelpath"
	"longship/internal/vae"
	"longship/pipeline"
	"longship/stages/port"
)

// Factory makes the stage.
func Factory() pipeline.Factory {
	return pipeline.Factory{
		Type:    "latents",
		Summary: "encodes images with the VAE into the cache",
		Default: func() any { return Default() },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			s := &stage{set: set, cfg: cfg.(*Config), in: pipeline.NewIn[port.Sample]("samples")}
			s.out = pipeline.NewOut[port.Sample]("encoded", pipeline.Forwards(s.in), pipeline.Adds("latent"))
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

// source is an autoencoder that has been found but not loaded.
type source struct {
	keys  keys
	open  func(ctx context.Context, sizes []port.Bucket) (encoder, error)
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
	src, err := s.findVAE(ctx, store)
	if err != nil {
		return err
	}
	list := listImages(samples)
	w := work{store: store, keys: src.keys, workers: s.cfg.Workers, open: src.open}
	n, err := w.run(ctx, list.images, s.sender(ctx, samples, list, store))
	s.set.Summarise("latents encoded", n.encoded)
	s.set.Summarise("latents found in the cache", n.hits)
	err = errors.Join(err, src.close())
	if errors.Is(err, errStopped) || errors.Is(err, pipeline.ErrDone) {
		return nil
	}
	return err
}

// Check opens the device, finds the autoencoder, and looks at its config and headers.
func (s *stage) Check(ctx context.Context) error {
	_, _, err := device.Open(ctx, s.set.Env)
	files, err2 := s.openVAE()
	if err2 == nil {
		err2 = files.Close()
	}
	return errors.Join(err, err2, cachefill.Check(s.cfg.Cache))
}

// openVAE finds the autoencoder of the run's model.
func (s *stage) openVAE() (*vae.Files, error) {
	path, err := modelpath.VAE(s.set.Env.Model)
	if err != nil {
		return nil, err
	}
	return vae.Open(path)
}

// findVAE finds the autoencoder and the keys of what it makes.
func (s *stage) findVAE(ctx context.Context, store *cache.Store) (source, error) {
	files, err := s.openVAE()
	if err != nil {
		return source{}, err
	}
	wait, cancel := s.set.Env.UntilStopped(ctx)
	defer cancel()
	ks, err := newKeys(wait, store, files, s.cfg.options())
	if err != nil {
		return source{}, errors.Join(err, files.Close())
	}
	open := func(ctx context.Context, sizes []port.Bucket) (encoder, error) { return s.lease(ctx, files, sizes) }
	return source{keys: ks, open: open, close: files.Close}, nil
}

// lease takes the autoencoder's whole share of the card and loads it.
func (s *stage) lease(ctx context.Context, files *vae.Files, sizes []port.Bucket) (encoder, error) {
	dev, budget, err := device.Open(ctx, s.set.Env)
	if err != nil {
		return nil, err
	}
	wait, cancel := s.set.Env.UntilStopped(ctx)
	defer cancel()
	release, err := budget.Acquire(wait, s.set.ID, files.EncoderBytes(s.cfg.Tile, sides(sizes)...))
	if err != nil {
		return nil, err
	}
	before := hostmem.Release()
	enc, err := files.Encoder(wait, dev, s.cfg.Tile)
	if err != nil {
		release()
		return nil, err
	}
	s.set.Log.Info("autoencoder loaded", "device", dev.Info().Name, "weights", files.Weights)
	return &leased{enc, func() {
		s.set.Log.Info("autoencoder unloaded", "host_mib_before", before>>20, "host_mib_after", hostmem.Release()>>20)
		release() // last: who waits for the card loads as soon as it may
	}}, nil
}

// leased is an encoder that gives its lease back when it is closed.
type leased struct {
	*vae.Encoder
	release func()
}

func (l *leased) Close() error {
	defer l.release()
	return l.Encoder.Close()
}
