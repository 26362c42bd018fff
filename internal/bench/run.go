package bench

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"gopkg.in/yaml.v3"

	"longship/gpu"
	"longship/gpu/profile"
	"longship/internal/device"
	"longship/internal/hostmem"
	"longship/internal/tracefile"
	"longship/pipeline"
)

// Options say what is measured.
type Options struct {
	Arch      Arch
	Device    gpu.Device
	Batch     int // samples in a micro-batch
	Steps     int // measured steps of a case
	Warmup    int // steps before them
	QType     string
	Outer     string
	Optimizer string
	Seed      uint64

	Prefetch, Train pipeline.Factory
	Log             hclog.Logger
	OnEvent         func(pipeline.Event) // told what the runs tell; may be nil
	// Trace has steps of each case traced, behind those that are measured; nil for
	// none. It must be one for steps behind Warmup + Steps.
	Trace *profile.Trace

	// PrefetchKeys and TrainKeys are settings of the stages beside those that the
	// case and the fields above name, which they come before.
	PrefetchKeys, TrainKeys map[string]any

	layout bool // the weights have shapes and no bytes, and there is one sample
}

// Run measures one case after the other and gives each result to take as it is
// there. Temporary files are removed.
func Run(ctx context.Context, o Options, cases []Case, take func(Result) error) error {
	for _, c := range cases {
		foreseen, err := o.foresee(ctx, c)
		if err != nil {
			return fmt.Errorf("case %s: %w", c, err)
		}
		r, err := o.run(ctx, c)
		if err != nil {
			return fmt.Errorf("case %s: %w", c, err)
		}
		r.Forecast = foreseen
		if err := take(r); err != nil {
			return err
		}
	}
	return nil
}

// run runs the pipeline of one case.
func (o Options) run(ctx context.Context, c Case) (Result, error) {
	dir, err := os.MkdirTemp("", "longship-bench-")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(dir)
	reg, err := pipeline.NewRegistry(sourceFactory(o, c.Pixels, filepath.Join(dir, "cache")), o.Prefetch, o.Train)
	if err != nil {
		return Result{}, err
	}
	text, err := yaml.Marshal(o.pipeline(c, dir))
	if err != nil {
		return Result{}, err
	}
	p, err := reg.Parse(text, pipeline.Options{Log: o.Log, Dir: dir, File: "bench"})
	if err != nil {
		return Result{}, err
	}
	p.Env.Profile = true
	if err := device.Use(ctx, p.Env, o.Device); err != nil {
		return Result{}, err
	}
	if o.Trace != nil {
		o.Trace.Run(c.String())
		if err := tracefile.Use(ctx, p.Env, o.Trace); err != nil {
			return Result{}, err
		}
	}
	w := &watch{opt: o, started: time.Now()}
	if _, err := p.Run(ctx, pipeline.RunOptions{OnEvent: w.event}); err != nil {
		return Result{}, err
	}
	hostmem.Release()
	return w.result(c), nil
}

// pipeline is the pipeline file of a case.
func (o Options) pipeline(c Case, dir string) map[string]any {
	type m = map[string]any
	steps := o.Warmup + o.Steps
	if o.Trace != nil {
		steps += profile.TracedSteps
	}
	load := m{"offload": c.Offload, "batch_size": o.Batch}
	learn := m{"optimizer": o.Optimizer, "network": m{"rank": c.Rank, "alpha": c.Rank}}
	maps.Copy(load, o.PrefetchKeys)
	maps.Copy(learn, o.TrainKeys)
	learn["steps"], learn["validate_every"] = steps, 0
	return m{
		"name": "bench", "vram": c.Cap, "output": dir, "seed": o.Seed,
		"stages": []m{{sourceType: m{}}, {o.Prefetch.Type: load}, {o.Train.Type: learn}},
	}
}
