package checkpoint

import (
	"context"

	"longship/internal/runstate"
	"longship/pipeline"
)

// group is the checkpoint stages of a run, in the order of the list. The first
// writes files of the run's name, each other one files that carry its id too. At
// a step the first that is due saves for all that are: their files make one
// checkpoint, so no run goes on from a step that one of them lacks.
type group struct{ stages []*stage }

// join adds s to the group of its run.
func join(s *stage) error {
	g, err := pipeline.Shared(context.Background(), s.set.Env, "checkpoint stages",
		func(context.Context) (*group, error) { return new(group), nil })
	if err != nil {
		return err
	}
	if len(g.stages) > 0 {
		s.series = s.set.ID
	}
	g.stages = append(g.stages, s)
	s.group = g
	return nil
}

// due returns the stages that are to save at a moment.
func (g *group) due(at pipeline.Moment) (due []*stage) {
	for _, s := range g.stages {
		if s.due(at) {
			due = append(due, s)
		}
	}
	return due
}

// options says what the due stages write.
func options(due []*stage, final bool) runstate.SaveOptions {
	opt := runstate.SaveOptions{Final: final}
	for _, s := range due {
		opt.Files = append(opt.Files, runstate.AdapterFile{Series: s.series, Layout: s.cfg.Layout, DType: s.cfg.DType, Keep: s.cfg.Keep})
	}
	return opt
}
