// Package device opens the one device and the one memory budget that all
// stages of a run share, as the head of the pipeline file says: device and vram.
//
// Open may be called by any stage at any time: the first call opens, the engine
// closes after all stages.
package device

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/pipeline"
)

// maxAutoParams is the size of a model from which `device: auto` no longer
// takes the CPU: a step would take hours.
const maxAutoParams = 1_000_000_000

// Open returns the run's device and its memory budget.
//
// `auto` takes a GPU where there is one, else the CPU for models of less than
// 1 B parameters; a larger model is an error that says why no GPU was found.
// `cpu` and `cuda:N` insist. What is wrong with the two settings is a
// *pipeline.HeadError of "device" or "vram".
func Open(ctx context.Context, env *pipeline.Env) (gpu.Device, *gpu.Budget, error) {
	s, err := pipeline.Shared(ctx, env, "device", func(context.Context) (*shared, error) { return open(env) })
	if err != nil {
		return nil, nil, err
	}
	return s.dev, s.budget, nil
}

// shared is closed by the engine.
type shared struct {
	dev    gpu.Device
	budget *gpu.Budget
}

func (s *shared) Close() error { return s.dev.Close() }

func open(env *pipeline.Env) (*shared, error) {
	dev, err := choose(env)
	if err != nil {
		return nil, err
	}
	total, err := budget(env.VRAM, dev.Info())
	if err != nil {
		dev.Close()
		return nil, err
	}
	return &shared{dev: dev, budget: gpu.NewBudget(total)}, nil
}

// choose opens the device that the settings and the model ask for.
func choose(env *pipeline.Env) (gpu.Device, error) {
	name, index, found := strings.Cut(env.Device, ":")
	switch {
	case env.Device == "cpu":
		return cpu.New()
	case name == "cuda":
		n := 0
		if found {
			var err error
			if n, err = strconv.Atoi(index); err != nil || n < 0 {
				return nil, fault("device", "%q: cuda:N needs the number of a card, from 0", env.Device)
			}
		}
		dev, err := openCUDA(n)
		if err != nil {
			return nil, fault("device", "%s: %w", env.Device, err)
		}
		return dev, nil
	case env.Device == "auto" || env.Device == "":
		dev, why := openCUDA(0)
		if why == nil {
			return dev, nil
		}
		params, err := parameters(env.Model)
		if err != nil {
			return nil, err
		}
		if params >= maxAutoParams {
			return nil, fault("device", "auto: the model has %s parameters and no GPU was found (%w); device: cpu uses the CPU all the same", humanize.SIWithDigits(float64(params), 1, ""), why)
		}
		return cpu.New()
	}
	return nil, fault("device", "%q is not auto, cpu or cuda:N", env.Device)
}

// budget returns the bytes that the stages may take together. A GPU's is its
// memory less what context and libraries need; the CPU has none unless one is set.
func budget(vram string, info gpu.Info) (int64, error) {
	if vram == "auto" || vram == "" {
		if info.Kind == "cpu" {
			return math.MaxInt64, nil
		}
		return info.TotalBytes - reserved, nil
	}
	n, err := humanize.ParseBytes(vram)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return 0, fault("vram", "%q is not auto or a size like 23.5GiB", vram)
	}
	return int64(n), nil
}

// reserved is what a CUDA context and cublasLt take of a card beside our memory.
const reserved = 1 << 30

func fault(key, format string, args ...any) error {
	return &pipeline.HeadError{Path: key, Err: fmt.Errorf(format, args...)}
}
