package checkpoint

import (
	"context"
	"errors"
	"io"
	"time"

	"longship/cache/folderlock"
	"longship/internal/runstate"
	"longship/pipeline"
	"longship/stages/port"
)

// Factory makes the stage.
func Factory() pipeline.Factory {
	return pipeline.Factory{
		Type:    "checkpoint",
		Summary: "saves the adapter and the state that a later run goes on from",
		Default: func() any { return Default() },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			s := &stage{set: set, cfg: cfg.(*Config)}
			s.state = pipeline.NewBorrow[*port.State]("state", s.wants)
			return s, join(s)
		},
	}
}

type stage struct {
	set    pipeline.Settings
	cfg    *Config
	state  *pipeline.Borrow[*port.State]
	group  *group
	series string // what its files are called beside the run's name
}

func (s *stage) Ports() []pipeline.Port { return []pipeline.Port{s.state} }

// due says whether to save at a step: every so many, the last, and the one
// at which the run stops. Before the first step there is nothing to save.
func (s *stage) due(at pipeline.Moment) bool {
	now := s.cfg.Every > 0 && at.Step%s.cfg.Every == 0
	return at.Step > 0 && (now || at.Last || at.Stop)
}

// wants says whether it is this stage that saves at a step.
func (s *stage) wants(at pipeline.Moment) bool {
	due := s.group.due(at)
	return len(due) > 0 && due[0] == s
}

// Check sees whether the run's files can be written.
func (s *stage) Check(context.Context) error {
	env := s.set.Env
	if err := folderlock.Writable(runstate.In(env.Output, env.Name).Dir); err != nil {
		return &pipeline.HeadError{Path: "output", Err: err}
	}
	return nil
}

// Run takes the run's folder at once, so that of two runs of one name the
// second fails before it has worked for hours.
func (s *stage) Run(ctx context.Context) error {
	folder, err := runstate.Shared(ctx, s.set.Env)
	if err != nil {
		return err
	}
	for {
		st, at, giveBack, err := s.state.Recv(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = s.save(ctx, folder, st, at)
		giveBack(err)
		if err != nil {
			return err
		}
	}
}

// save saves for every stage that is due.
func (s *stage) save(ctx context.Context, folder *runstate.Run, st *port.State, at pipeline.Moment) error {
	start := time.Now()
	due := s.group.due(at)
	saved, err := folder.Save(ctx, options(due, at.Last), st)
	if err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	for _, name := range saved.Removed {
		s.set.Log.Debug("removed an older file", "file", name)
	}
	if saved.Left != nil {
		s.set.Log.Warn("an older checkpoint cannot be removed", "error", saved.Left)
	}
	for i, other := range due {
		other.saved(ctx, saved, saved.Adapters[i], at, took)
	}
	return nil
}

// saved tells of the stage's file of a checkpoint.
func (s *stage) saved(ctx context.Context, saved runstate.Saved, adapter string, at pipeline.Moment, took float64) {
	s.set.Log.Debug("saved", "step", at.Step, "file", adapter, "bytes", saved.Bytes, "seconds", took)
	s.set.Env.Emit(ctx, pipeline.Event{Event: "saved", Stage: s.set.ID, Data: map[string]any{
		"step": at.Step, "file": adapter, "state": saved.State, "bytes": saved.Bytes, "seconds": took, "final": at.Last,
	}})
	if at.Last || at.Stop {
		s.set.Summarise("saved", adapter)
	}
}
