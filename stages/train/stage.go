package train

import (
	"context"
	"errors"
	"fmt"
	"io"

	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/flux2"
	"longship/internal/optim"
	"longship/internal/runstate"
	"longship/internal/tracefile"
	"longship/pipeline"
	"longship/stages/port"
)

// Factory makes the stage.
func Factory() pipeline.Factory {
	return pipeline.Factory{
		Type:    "train",
		Summary: "trains a LoRA adapter of FLUX.2 on batches, step by step",
		Default: func() any { return Default() },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			if err := alone(set); err != nil {
				return nil, err
			}
			return &stage{
				set: set, cfg: *cfg.(*Config),
				batches:    pipeline.NewIn[*port.Batch]("batches", pipeline.Single()),
				steps:      pipeline.NewOut[port.Step]("steps"),
				validation: pipeline.NewOut[port.Validation]("validation"),
				state:      pipeline.NewLend[*port.State]("state"),
			}, nil
		},
	}
}

// alone refuses a second train stage: a run has one adapter, one position and
// one row of checkpoints.
func alone(set pipeline.Settings) error {
	first, err := pipeline.Shared(context.Background(), set.Env, "train stage", func(context.Context) (string, error) { return set.ID, nil })
	if err == nil && first != set.ID {
		err = fmt.Errorf("stage %s trains already, and a run makes one adapter: give this one a pipeline of its own", first)
	}
	return err
}

type stage struct {
	set        pipeline.Settings
	cfg        Config
	batches    *pipeline.In[*port.Batch]
	steps      *pipeline.Out[port.Step]
	validation *pipeline.Out[port.Validation]
	state      *pipeline.Lend[*port.State]

	trainer *trainer // from Run to Close
}

func (s *stage) Ports() []pipeline.Port {
	return []pipeline.Port{s.batches, s.steps, s.validation, s.state}
}

// Run trains from where the run's folder says it stands to the last step.
func (s *stage) Run(ctx context.Context) error {
	run, err := runstate.Shared(ctx, s.set.Env)
	if err != nil {
		return err
	}
	if c := run.Checkpoint; s.finished(c) {
		s.set.Log.Info("the run is finished; raise steps to go on, or start afresh with --restart",
			"step", c.Step, "steps", s.cfg.Steps, "adapter", c.AdapterPath)
		s.tellFinished(c)
		return nil
	}
	first, err := s.batches.Recv(ctx)
	if errors.Is(err, io.EOF) && s.set.Env.Stopped() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("receive the first batch: %w", err)
	}
	if s.set.Env.Stopped() { // there is nothing new to save yet
		first.Release(nil)
		return nil
	}
	return s.train(ctx, run.Checkpoint, first)
}

// train builds the trainer and runs the loop. Whatever ends it, no queued work
// is left when it returns: weights and batches are others' to free.
func (s *stage) train(ctx context.Context, from *runstate.Checkpoint, first *port.Batch) (err error) {
	p, err := s.plan(first.Source)
	if err != nil {
		return err
	}
	l := &loop{stage: s, source: first.Source, lent: port.State{Dataset: first.Source.Dataset()}}
	if err := l.compare(from); err != nil {
		return err
	}
	trace, err := tracefile.Of(ctx, s.set.Env)
	if err != nil {
		return err
	}
	p.profile = s.profiles(first.Source.Device(), trace)
	if s.trainer, err = newTrainer(ctx, p, first.Source); err != nil {
		return err
	}
	l.t = s.trainer
	defer func() {
		if err != nil {
			s.trainer.compute.Fail(err)
		}
		if failed := s.trainer.compute.Sync(); err == nil {
			err = failed
		}
	}()
	if err := l.prepare(ctx, from); err != nil {
		return err
	}
	return l.run(ctx, first)
}

// plan decides all that the trainer is built from.
func (s *stage) plan(source port.Source) (plan, error) {
	c := &s.cfg
	model, err := flux2.ParseConfig(source.Config())
	if err != nil {
		return plan{}, err
	}
	targets, err := s.targets(model)
	if err != nil {
		return plan{}, err
	}
	act, err := activations(c.DType, source.Device().Info().Kind)
	if err != nil {
		return plan{}, err
	}
	p := plan{
		model: model, shapes: source.Shapes(),
		layers: adapter.Layers(targets, c.Network.rank(), c.Network.alpha()), dtype: c.Network.dtype(), init: c.Network.Init,
		seed: s.set.Env.Seed, timesteps: c.timesteps(), guidance: c.Guidance, micros: c.GradientAccumulation,
		optimizer: optim.Config{
			Name: c.Optimizer, Beta1: c.OptimizerParams.Betas[0], Beta2: c.OptimizerParams.Betas[1],
			Eps: c.OptimizerParams.Eps, WeightDecay: c.OptimizerParams.WeightDecay, Seed: s.set.Env.Seed,
		},
		scope: c.Clip.Scope, recompute: c.Recompute, act: act, validation: source.Validation(),
	}
	if p.scope != scopeNone {
		p.clip = c.clipNorm()
	}
	if c.EMA.Use {
		p.emaDecay = c.EMA.Decay
	}
	return p, nil
}

// targets returns what the adapter is put on.
func (s *stage) targets(model flux2.Config) ([]adapter.Target, error) {
	targets, err := adapter.Select(model.Modules(), s.cfg.Network.Targets, s.cfg.Network.Exclude)
	if bad := (*adapter.SelectError)(nil); errors.As(err, &bad) {
		return nil, &pipeline.FieldError{Path: "network." + bad.List, Msg: bad.Err.Error(), Err: err}
	}
	return targets, err
}

// activations returns the type of activations on a device of a kind.
func activations(dtype, kind string) (tensor.DType, error) {
	cpu := kind == "cpu"
	switch {
	case dtype == "bf16" && cpu:
		return 0, &pipeline.FieldError{Path: "dtype", Msg: "the CPU device computes in fp32; use fp32 or auto"}
	case dtype == "fp32" || cpu:
		return tensor.F32, nil
	default:
		return tensor.BF16, nil
	}
}

// Close frees the device memory.
func (s *stage) Close() error {
	if s.trainer == nil {
		return nil
	}
	t := s.trainer
	s.trainer = nil
	return t.close()
}
