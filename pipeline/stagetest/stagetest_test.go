package stagetest

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// keeper borrows a box, and passes boxes on; it lends what it has.
type keeper struct {
	set  pipeline.Settings
	in   *pipeline.In[*box]
	from *pipeline.Borrow[*box]
	out  *pipeline.Out[*box]
	lent *pipeline.Lend[*box]
}

func (s *keeper) Ports() []pipeline.Port { return []pipeline.Port{s.in, s.from, s.out, s.lent} }

func (s *keeper) Run(ctx context.Context) error {
	for {
		b, at, giveBack, err := s.from.Recv(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		s.set.Summarise("borrowed", b.n*100+at.Step)
		giveBack(nil)
	}
	return pipeline.Each(ctx, s.set, s.in, func(ctx context.Context, b *box) error {
		if err := s.lent.Lend(ctx, pipeline.Moment{Step: b.n}, b); err != nil {
			return err
		}
		return s.out.Send(ctx, b)
	})
}

func keeperFactory() pipeline.Factory {
	return pipeline.Factory{
		Type: "keeper", Summary: "handles and loans",
		Default: func() any { return &struct{}{} },
		New: func(set pipeline.Settings, _ any) (pipeline.Stage, error) {
			return &keeper{set, pipeline.NewIn[*box]("boxes"), pipeline.NewBorrow[*box]("from", func(at pipeline.Moment) bool { return at.Step > 1 }),
				pipeline.NewOut[*box]("out"), pipeline.NewLend[*box]("lent")}, nil
		},
	}
}

func TestHandlesAndLoans(t *testing.T) {
	got := Collect[*box]("out")
	var borrowed []int
	o := Run(t, keeperFactory(), "",
		Feed("boxes", &box{1}, &box{2}, &box{3}), got,
		Lend("from", Loan[*box]{pipeline.Moment{Step: 1}, &box{7}}, Loan[*box]{pipeline.Moment{Step: 2}, &box{8}}),
		BorrowAt("lent", func(at pipeline.Moment) bool { return at.Step != 2 }, func(b *box, at pipeline.Moment) error {
			borrowed = append(borrowed, b.n)
			return nil
		}))
	if o.Summary()["borrowed"] != 802 || len(got.Values) != 3 || fmt.Sprint(borrowed) != "[1 3]" {
		t.Errorf("summary %v, got %v, borrowed %v", o.Summary(), got.Values, borrowed)
	}
	cause := errors.New("enough")
	o = Try(t, keeperFactory(), "", Feed("boxes", &box{1}, &box{2}), Lend[*box]("from"),
		Collect[*box]("out").Each(func(*box) error { return cause }))
	if !errors.Is(o.Err, cause) {
		t.Errorf("error %v", o.Err)
	}
	if o := Try(t, keeperFactory(), "", Feed("bxs", &box{1})); o.Err == nil || !strings.Contains(o.Err.Error(), `no input "bxs"`) {
		t.Errorf("error %v", o.Err)
	}
}

func TestHandlesConform(t *testing.T) { Conformance(t, keeperFactory(), "") }
