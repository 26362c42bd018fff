package stagetest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"longship/pipeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// word is a message, box a handle.
type word struct{ Text string }

func (word) MessageType() string { return "word" }

type box struct{ n int }

type upperConfig struct {
	Suffix string `yaml:"suffix"`
}

// upper is the stage under test: it shouts, and refuses what is empty.
type upper struct {
	set pipeline.Settings
	cfg *upperConfig
	in  *pipeline.In[word]
	out *pipeline.Out[word]
}

func (s *upper) Ports() []pipeline.Port { return []pipeline.Port{s.in, s.out} }

func (s *upper) Run(ctx context.Context) error {
	return pipeline.Each(ctx, s.set, s.in, func(ctx context.Context, w word) error {
		if w.Text == "" {
			return pipeline.Reject(errors.New("it is empty"))
		}
		return s.out.Send(ctx, word{strings.ToUpper(w.Text) + s.cfg.Suffix})
	})
}

func upperFactory() pipeline.Factory {
	return pipeline.Factory{
		Type: "upper", Summary: "shouts",
		Default: func() any { return &upperConfig{Suffix: "!"} },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			in := pipeline.NewIn[word]("words", pipeline.Needs("sense"))
			return &upper{set, cfg.(*upperConfig), in, pipeline.NewOut[word]("shouts", pipeline.Forwards(in))}, nil
		},
	}
}

func TestRun(t *testing.T) {
	got := Collect[word]("shouts")
	o := Run(t, upperFactory(), `{suffix: "?"}`, Feed("words", word{"a"}, word{""}, word{"b"}), got)
	if len(got.Values) != 2 || got.Values[0].Text != "A?" || got.Values[1].Text != "B?" {
		t.Errorf("got %v", got.Values)
	}
	if aside := o.SetAside(); len(aside) != 1 || aside[0] != "word 2" {
		t.Errorf("set aside %v", aside)
	}
	if len(o.Events) != 1 || o.Events[0].Event != "set_aside" {
		t.Errorf("events %v", o.Events)
	}
}

func TestConfigFault(t *testing.T) {
	o := Try(t, upperFactory(), `{sufix: "?"}`, Feed("words", word{"a"}))
	var ce *pipeline.ConfigError
	if !errors.As(o.Err, &ce) || !strings.Contains(ce.Error(), `did you mean "suffix"?`) {
		t.Errorf("error %v", o.Err)
	}
}

func TestConformance(t *testing.T) { Conformance(t, upperFactory(), "") }
