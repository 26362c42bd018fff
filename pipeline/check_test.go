package pipeline

import (
	"context"
	"errors"
	"io/fs"
	"testing"
)

// looks is a stage that finds faults when it is asked.
type looks struct {
	fake
	err error
}

func (l *looks) Check(context.Context) error { return l.err }

func TestCheck(t *testing.T) {
	missing := &fs.PathError{Op: "stat", Path: "photos", Err: fs.ErrNotExist}
	found := map[string]error{
		"a": errors.Join(&FieldError{"network.rank", "too large for this model"}, missing),
		"b": nil,
		"c": &FieldError{"folder", "is a file"},
	}
	f := fakeFactory("looks", func(*fake) {})
	f.New = func(set Settings, cfg any) (Stage, error) { return &looks{err: found[set.ID]}, nil }
	reg, err := NewRegistry(f)
	if err != nil {
		t.Fatal(err)
	}
	p, err := reg.Parse([]byte("stages:\n  - looks:\n      id: a\n      network:\n        rank: 3\n  - looks: {id: b}\n  - looks: {id: c}\n"), Options{File: "p.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Check(context.Background())
	wantFaults(t, err, "p.yaml:2:5: stage a: stat photos: file does not exist", "p.yaml:5:15: stage a: network.rank: too large for this model",
		"p.yaml:7:12: stage c: folder: is a file")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
}
