// Package device opens the one device and the one memory budget that all
// stages of a run share, as the head of the pipeline file says: device and vram.
//
// Open may be called by any stage at any time: the first call opens, the engine
// closes after all stages.
package device

import (
	"context"
	"fmt"
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

// Use makes dev the device of a run, before any of its stages has asked for
// one. It stays the caller's, who closes it after the run.
func Use(ctx context.Context, env *pipeline.Env, dev gpu.Device) error {
	_, err := pipeline.Shared(ctx, env, "device", func(context.Context) (*shared, error) { return share(env, dev, false) })
	return err
}

// shared is closed by the engine.
type shared struct {
	dev    gpu.Device
	ours   bool // to be closed
	budget *gpu.Budget
}

func (s *shared) Close() error {
	if !s.ours {
		return nil
	}
	return s.dev.Close()
}

func open(env *pipeline.Env) (*shared, error) {
	dev, err := Choose(env.Device, func() (int64, error) { return parameters(env.Model) })
	if err != nil {
		return nil, err
	}
	s, err := share(env, dev, true)
	if err != nil {
		dev.Close()
	}
	return s, err
}

// share takes dev as the device of a run.
func share(env *pipeline.Env, dev gpu.Device, ours bool) (*shared, error) {
	total, err := room(env.VRAM, dev)
	if err != nil {
		return nil, err
	}
	var beside int64
	if card, ok := dev.(gpu.MemReporter); ok {
		m, err := card.MemInfo()
		if err != nil {
			return nil, err
		}
		beside = m.Own + growth
	}
	return &shared{dev: dev, ours: ours, budget: gpu.NewBudget(total).Beside(beside)}, nil
}

// Choose opens the device of a name, as Open does; parameters counts the model's.
func Choose(device string, parameters func() (int64, error)) (gpu.Device, error) {
	name, index, found := strings.Cut(device, ":")
	switch {
	case device == "cpu":
		return cpu.New()
	case name == "cuda":
		n := 0
		if found {
			var err error
			if n, err = strconv.Atoi(index); err != nil || n < 0 {
				return nil, fault("device", "%q: cuda:N needs the number of a card, from 0", device)
			}
		}
		dev, err := openCUDA(n)
		if err != nil {
			return nil, fault("device", "%s: %w", device, err)
		}
		return dev, nil
	case device == "auto" || device == "":
		dev, why := openCUDA(0)
		if why == nil {
			return dev, nil
		}
		params, err := parameters()
		if err != nil {
			return nil, err
		}
		if params >= maxAutoParams {
			return nil, fault("device", "auto: the model has %s parameters and no GPU was found (%w); device: cpu uses the CPU all the same", humanize.SIWithDigits(float64(params), 1, ""), why)
		}
		return cpu.New()
	}
	return nil, fault("device", "%q is not auto, cpu or cuda:N", device)
}

func fault(key, format string, args ...any) error {
	return &pipeline.HeadError{Path: key, Err: fmt.Errorf(format, args...)}
}
