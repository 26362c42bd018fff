package cached

import (
	"context"
	"errors"
	"fmt"

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

func (s *stage) Run(ctx context.Context) error {
	store, err := cache.Shared(ctx, s.set.Env, string(s.cfg.Cache))
	if err != nil {
		return err
	}
	samples, err := port.GetSamples(ctx, store, s.cfg.List)
	if errors.Is(err, cache.ErrNotFound) {
		return fmt.Errorf("no samples %q in cache %s: run the pipeline that records it once, or correct list or cache (%w)", s.cfg.List, store.Dir(), err)
	}
	if err != nil {
		return err
	}
	for _, sample := range samples {
		for _, c := range s.cfg.Carries {
			if !carried[c](sample) {
				return fmt.Errorf("carries: sample %s of list %q has no %s: name the list of the stage that adds it, or put that stage behind this one", sample.ID, s.cfg.List, c)
			}
		}
	}
	s.set.Summarise("samples", len(samples))
	for _, sample := range samples {
		switch err := s.out.Send(ctx, sample); {
		case errors.Is(err, pipeline.ErrDone):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}
