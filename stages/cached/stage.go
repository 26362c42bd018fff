package cached

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"longship/cache"
	"longship/pipeline"
	"longship/stages/port"
)

// Factory makes the stage.
func Factory() pipeline.Factory {
	return pipeline.Factory{
		Type:    "cached",
		Summary: "emits the samples that an earlier run recorded in a cache, without the images",
		Default: func() any { return Default() },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			c := cfg.(*Config)
			return &stage{set: set, cfg: c, out: pipeline.NewOut[port.Sample]("samples", pipeline.Adds(c.Carries...))}, nil
		},
	}
}

type stage struct {
	set pipeline.Settings
	cfg *Config
	out *pipeline.Out[port.Sample]
}

func (s *stage) Ports() []pipeline.Port { return []pipeline.Port{s.out} }

// Check looks for the list in the cache. While another process has the cache it
// is an error that says so, unless Env says to wait for it, which Run does.
func (s *stage) Check(ctx context.Context) error {
	if s.set.Env.Wait {
		return nil
	}
	store, err := cache.Open(ctx, string(s.cfg.Cache), cache.Options{Existing: true, Run: s.set.Env.Name, Log: s.set.Log})
	if errors.Is(err, fs.ErrNotExist) {
		return &pipeline.FieldError{Path: "cache", Msg: err.Error(), Err: err}
	}
	if err != nil {
		return err
	}
	_, err = s.samples(ctx, store)
	return errors.Join(err, store.Close())
}

// samples returns the list.
func (s *stage) samples(ctx context.Context, store *cache.Store) ([]port.Sample, error) {
	samples, err := port.GetSamples(ctx, store, s.cfg.List)
	if errors.Is(err, cache.ErrNotFound) {
		return nil, &pipeline.FieldError{Path: "list", Err: err,
			Msg: fmt.Sprintf("no samples %q in cache %s: run the pipeline that records it once, or correct list or cache", s.cfg.List, store.Dir())}
	}
	if err != nil {
		return nil, err
	}
	for _, sample := range samples {
		for _, c := range s.cfg.Carries {
			if !carried[c](sample) {
				return nil, &pipeline.FieldError{Path: "carries",
					Msg: fmt.Sprintf("sample %s of list %q has no %s: name the list of the stage that adds it, or put that stage behind this one", sample.ID, s.cfg.List, c)}
			}
		}
	}
	s.set.Summarise("samples", len(samples))
	return samples, nil
}

func (s *stage) Run(ctx context.Context) error {
	store, err := cache.Shared(ctx, s.set.Env, string(s.cfg.Cache))
	if err != nil {
		return err
	}
	samples, err := s.samples(ctx, store)
	if err != nil {
		return err
	}
	return port.SendAll(ctx, s.out, samples)
}
