package bench

import (
	"context"
	"errors"
	"fmt"

	"longship/cache"
	"longship/gpu/memory"
	"longship/internal/dtype"
	"longship/internal/rng"
	"longship/pipeline"
	"longship/stages/port"
)

// sourceType is the stage that stands for all that comes before prefetch.
const sourceType = "bench_source"

// sourceFactory makes the stage for a model and square images of px pixels a side.
func sourceFactory(o Options, px int, dir string) pipeline.Factory {
	return pipeline.Factory{
		Type:    sourceType,
		Summary: "makes samples and weights of a model's shape from a seed",
		Default: func() any { return &struct{}{} },
		New: func(set pipeline.Settings, _ any) (pipeline.Stage, error) {
			return &source{
				set: set, opt: o, px: px, dir: dir,
				samples: pipeline.NewOut[port.Sample]("samples", pipeline.Adds("latent", "text")),
				weights: pipeline.NewOut[*memory.WeightSet]("weights", pipeline.Capacity(1)), // taken once the samples have ended
			}, nil
		},
	}
}

type source struct {
	set     pipeline.Settings
	opt     Options
	px      int
	dir     string // of the cache
	samples *pipeline.Out[port.Sample]
	weights *pipeline.Out[*memory.WeightSet]
}

func (s *source) Ports() []pipeline.Port { return []pipeline.Port{s.samples, s.weights} }

// sampleCount is how many samples there are: the cost of a step does not
// depend on it.
const sampleCount = 4

// Run sends the samples and the weights.
func (s *source) Run(ctx context.Context) error {
	store, err := cache.Shared(ctx, s.set.Env, s.dir)
	if err != nil {
		return err
	}
	samples := sampleCount
	if s.opt.layout {
		samples = 1
	}
	for i := range samples {
		sample, err := s.sample(ctx, store, i)
		if err != nil {
			return err
		}
		if err := s.samples.Send(ctx, sample); err != nil {
			return err
		}
	}
	set, err := Weights(s.opt.Arch.Config, s.opt.QType, s.opt.Outer, s.opt.Seed)
	if err != nil {
		return err
	}
	if s.opt.layout {
		set.Fill = nil
	}
	if err := s.weights.Send(ctx, set); err != nil && !errors.Is(err, pipeline.ErrDone) {
		return err
	}
	return nil
}

// sample puts a latent of N(0, 1) and a prompt of N(0, 1) into the cache.
func (s *source) sample(ctx context.Context, store *cache.Store, i int) (port.Sample, error) {
	c, side := s.opt.Arch.Config, s.px/16
	out := port.Sample{
		ID: fmt.Sprintf("bench/%d", i), Bucket: port.Bucket{W: s.px, H: s.px}, Repeats: 1, Weight: 1,
		TextTokens: s.opt.Arch.TextTokens, LatentCache: store.Dir(), TextCache: store.Dir(),
	}
	var err error
	if out.Latent, err = s.put(ctx, store, "latent", i, c.InChannels, side, side); err != nil {
		return out, err
	}
	out.Text, err = s.put(ctx, store, "text", i, s.opt.Arch.TextTokens, c.TextDim)
	return out, err
}

func (s *source) put(ctx context.Context, store *cache.Store, kind string, i int, shape ...int) (cache.Ref, error) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	x := make([]float32, n)
	rng.New(s.opt.Seed, "bench/"+kind, i).FillNormal(x, 0)
	ref := cache.Ref{Kind: kind, DType: "f32", Shape: shape, Key: cache.NewKey("bench").Text(kind).Int(i).Int(shape...).Sum()}
	return ref, store.Put(ctx, ref, dtype.Bytes(x))
}
