package quantize

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"

	"longship/cache"
	"longship/gpu/memory"
	"longship/internal/cachefill"
	"longship/internal/modelpath"
	"longship/internal/weights"
	"longship/pipeline"
)

// Factory makes the stage.
func Factory() pipeline.Factory {
	return pipeline.Factory{
		Type:    "quantize",
		Summary: "stores the transformer's weights in fewer bytes, once, and hands them on as units",
		Default: func() any { return Default() },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			return &stage{set: set, cfg: cfg.(*Config), out: pipeline.NewOut[*memory.WeightSet]("weights")}, nil
		},
	}
}

type stage struct {
	set pipeline.Settings
	cfg *Config
	out *pipeline.Out[*memory.WeightSet]
}

func (s *stage) Ports() []pipeline.Port { return []pipeline.Port{s.out} }

// Run gives up at once where the user asks the run to stop: weights that are
// not ready are made again from the start.
func (s *stage) Run(ctx context.Context) error {
	work, cancel := s.set.Env.UntilStopped(ctx)
	defer cancel()
	set, err := s.prepare(work)
	if err != nil {
		return err
	}
	if s.set.Env.Stopped() {
		return set.Close()
	}
	if err := s.out.Send(ctx, set); err != nil {
		err = errors.Join(err, set.Close())
		if errors.Is(err, pipeline.ErrDone) {
			return nil
		}
		return err
	}
	return nil
}

// Check finds the transformer and looks at its config and headers.
func (s *stage) Check(context.Context) error {
	err := cachefill.Check(s.cfg.Cache)
	model, err2 := s.open()
	if err2 != nil {
		return errors.Join(err, err2)
	}
	s.set.Summarise("transformer", fmt.Sprintf("%s, %s parameters", model.Config.Arch(), humanize.SIWithDigits(float64(model.Config.Params()), 1, "")))
	return errors.Join(err, model.Close())
}

// open finds the transformer of the run's model.
func (s *stage) open() (*weights.Transformer, error) {
	path, err := modelpath.Transformer(s.set.Env.Model)
	if err != nil {
		return nil, err
	}
	return weights.OpenTransformer(path)
}

// prepare returns the weights, from the file that an earlier run made or from a new one.
func (s *stage) prepare(ctx context.Context) (*memory.WeightSet, error) {
	model, err := s.open()
	if err != nil {
		return nil, err
	}
	defer model.Close()
	store, err := cache.Shared(ctx, s.set.Env, string(s.cfg.Cache))
	if err != nil {
		return nil, err
	}
	start := time.Now()
	f := &file{model: model, store: store, env: s.set.Env, qtype: s.cfg.QType, outer: s.cfg.Outer, log: s.set.Log, progress: s.set.Meter(ctx, "bytes of weights")}
	set, how, err := f.get(ctx)
	if err != nil {
		return nil, err
	}
	bytes := set.Outer.Bytes
	for _, u := range set.Units {
		bytes += u.Bytes
	}
	s.set.Log.Info("weights are ready", "how", how, "qtype", s.cfg.QType, "units", len(set.Units), "bytes", bytes, "seconds", time.Since(start).Seconds())
	s.set.Summarise("weights", fmt.Sprintf("%s parameters as %s, %s, %s in %.1f s",
		humanize.SIWithDigits(float64(model.Config.Params()), 1, ""), s.cfg.QType, humanize.IBytes(uint64(bytes)), how, time.Since(start).Seconds()))
	return set, nil
}
