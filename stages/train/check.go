package train

import (
	"context"
	"errors"
	"fmt"

	"longship/internal/device"
	"longship/internal/flux2"
	"longship/internal/modelpath"
	"longship/internal/runstate"
	"longship/internal/weights"
)

// Check looks for the targets among the model's modules, and holds the settings
// against the checkpoint that the run would go on from. The model's own faults
// are for the stage that hands on its weights to tell, and the device's for the
// stage that shares it out.
func (s *stage) Check(ctx context.Context) error {
	var errs []error
	model, err := s.model()
	known := err == nil
	if known {
		targets, err := s.targets(model)
		if err == nil {
			s.set.Summarise("adapter", fmt.Sprintf("%s on %d modules", s.cfg.Network.Type, len(targets)))
		}
		errs = append(errs, err)
	}
	if dev, _, err := device.Open(ctx, s.set.Env); err == nil {
		_, err := activations(s.cfg.DType, dev.Info().Kind)
		errs = append(errs, err)
	}
	last, err := runstate.In(s.set.Env.Output, s.set.Env.Name).Peek()
	switch {
	case err != nil:
		errs = append(errs, err)
	case s.finished(last):
		s.tellFinished(last)
	case last != nil:
		s.set.Summarise("steps", fmt.Sprintf("goes on from step %d of %d", last.Step, s.cfg.Steps))
		errs = append(errs, s.goesOn(last))
		if known && last.Adapter.Arch != model.Arch() {
			errs = append(errs, &runstate.RefusedError{Name: s.set.Env.Name, Step: last.Step,
				Changes: []runstate.Change{{Name: "base model", Old: last.Adapter.Arch, New: model.Arch()}}})
		}
	}
	return errors.Join(errs...)
}

// model returns the config of the run's model.
func (s *stage) model() (flux2.Config, error) {
	path, err := modelpath.Transformer(s.set.Env.Model)
	if err != nil {
		return flux2.Config{}, err
	}
	return weights.TransformerConfig(path)
}

// goesOn says why the run cannot go on from a checkpoint, whatever its weights are.
func (s *stage) goesOn(from *runstate.Checkpoint) error {
	now, err := settings(s.set.Env, s.set.ID, &s.cfg)
	if err != nil {
		return err
	}
	for _, old := range from.Settings {
		if old.Name == baseWeights {
			now = append(now, old)
		}
	}
	_, err = from.Compare(s.set.Env.Name, now)
	return err
}

// finished says whether a checkpoint is of the last step, or behind it.
func (s *stage) finished(c *runstate.Checkpoint) bool { return c != nil && c.Step >= s.cfg.Steps }

func (s *stage) tellFinished(c *runstate.Checkpoint) {
	s.set.Summarise("steps", fmt.Sprintf("finished before, at step %d", c.Step))
}
