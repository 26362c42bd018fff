package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

// looks is a stage that finds faults when it is asked.
type looks struct {
	fake
	set Settings
	err error
}

func (l *looks) Check(context.Context) error {
	l.set.Summarise("looked at", l.set.ID)
	return l.err
}

func TestCheck(t *testing.T) {
	missing := &fs.PathError{Op: "stat", Path: "photos", Err: fs.ErrNotExist}
	found := map[string]error{
		"a": errors.Join(&FieldError{Path: "network.rank", Msg: "too large for this model"}, missing),
		"b": nil,
		"c": errors.Join(&FieldError{Path: "folder", Msg: "is a file"}, &HeadError{"model.path", missing}),
		"d": fmt.Errorf("two causes: %w and %w", &HeadError{"model.path", missing}, fs.ErrExist),
		"e": &HeadError{"vram", errors.New("too little")},
	}
	f := fakeFactory("looks", func(*fake) {})
	f.New = func(set Settings, cfg any) (Stage, error) { return &looks{err: found[set.ID], set: set}, nil }
	reg, err := NewRegistry(f)
	if err != nil {
		t.Fatal(err)
	}
	p, err := reg.Parse([]byte("model:\n  path: ./m\nstages:\n  - looks:\n      id: a\n      network:\n        rank: 3\n  - looks: {id: b}\n  - looks: {id: c}\n  - looks: {id: d}\n  - looks: {id: e}\n"), Options{File: "p.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	told, err := p.Check(context.Background())
	wantFaults(t, err,
		"p.yaml:1:1: vram: too little", // no such key: the head begins there
		"p.yaml:2:9: model.path: stat photos: file does not exist",
		"p.yaml:4:5: stage a: stat photos: file does not exist", "p.yaml:7:15: stage a: network.rank: too large for this model",
		"p.yaml:9:12: stage c: folder: is a file")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
	if len(told) != 5 || told[4] != (SummaryEntry{"e", "looked at", "e"}) {
		t.Errorf("told %v", told)
	}
	if again := p.Env.rt.takeSummary(); len(again) > 0 {
		t.Errorf("left for the run's summary: %v", again)
	}
}
