package main

import (
	"context"
	"fmt"

	"longship/pipeline"
	"longship/stages/port"
)

// config is what the user writes.
type config struct {
	MinSide   int     `yaml:"min_side" doc:"pixels of the shorter side that an image has at least" jsonschema:"minimum=1"`
	MaxAspect float64 `yaml:"max_aspect" doc:"longer side over shorter side, at most" jsonschema:"minimum=1"`
}

func (c *config) Validate() error {
	if c.MinSide < 1 {
		return &pipeline.FieldError{Path: "min_side", Msg: "must be 1 or more"}
	}
	if c.MaxAspect < 1 {
		return &pipeline.FieldError{Path: "max_aspect", Msg: "must be 1 or more"}
	}
	return nil
}

func factory() pipeline.Factory {
	return pipeline.Factory{
		Type: "filter_images", Summary: "leaves out images that are too small or too long",
		Default: func() any { return &config{MinSide: 256, MaxAspect: 3} },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			in := pipeline.NewIn[port.Sample]("samples")
			return &filter{set, cfg.(*config), in, pipeline.NewOut[port.Sample]("filtered", pipeline.Forwards(in))}, nil
		},
	}
}

type filter struct {
	set pipeline.Settings
	cfg *config
	in  *pipeline.In[port.Sample]
	out *pipeline.Out[port.Sample]
}

func (f *filter) Ports() []pipeline.Port { return []pipeline.Port{f.in, f.out} }

// Run passes samples on. One that is rejected is counted and named in the
// summary with the reason; the run goes on.
func (f *filter) Run(ctx context.Context) error {
	return pipeline.Each(ctx, f.set, f.in, func(ctx context.Context, s port.Sample) error {
		short, long := min(s.Width, s.Height), max(s.Width, s.Height)
		if short < f.cfg.MinSide {
			return pipeline.Reject(fmt.Errorf("its shorter side has %d pixels, min_side is %d", short, f.cfg.MinSide))
		}
		if aspect := float64(long) / float64(short); aspect > f.cfg.MaxAspect {
			return pipeline.Reject(fmt.Errorf("it is %.2f times as long as wide, max_aspect is %g", aspect, f.cfg.MaxAspect))
		}
		return f.out.Send(ctx, s)
	})
}
