package checkpoint

import (
	"context"
	"errors"
	"io"
	"time"

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
			return s, nil
		},
	}
}

type stage struct {
	set   pipeline.Settings
	cfg   *Config
	state *pipeline.Borrow[*port.State]
}

func (s *stage) Ports() []pipeline.Port { return []pipeline.Port{s.state} }

// wants says whether to save at a step: every so many, the last, and the one
// at which the run stops. Before the first step there is nothing to save.
func (s *stage) wants(at pipeline.Moment) bool {
	due := s.cfg.Every > 0 && at.Step%s.cfg.Every == 0
	return at.Step > 0 && (due || at.Last || at.Stop)
}

// Check sees whether the run's files can be written.
func (s *stage) Check(context.Context) error {
	env := s.set.Env
	if err := runstate.In(env.Output, env.Name).Writable(); err != nil {
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

func (s *stage) save(ctx context.Context, folder *runstate.Run, st *port.State, at pipeline.Moment) error {
	start := time.Now()
	saved, err := folder.Save(ctx, runstate.SaveOptions{
		Layout: s.cfg.Layout, DType: s.cfg.DType, Keep: s.cfg.Keep, Final: at.Last,
	}, st)
	if err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	s.set.Log.Debug("saved", "step", st.Step, "file", saved.Adapter, "bytes", saved.Bytes, "seconds", took)
	for _, name := range saved.Removed {
		s.set.Log.Debug("removed an older file", "file", name)
	}
	s.set.Env.Emit(ctx, pipeline.Event{Event: "saved", Stage: s.set.ID, Data: map[string]any{
		"step": st.Step, "file": saved.Adapter, "state": saved.State, "bytes": saved.Bytes, "seconds": took, "final": at.Last,
	}})
	if at.Last || at.Stop {
		s.set.Summarise("saved", saved.Adapter)
	}
	return nil
}
