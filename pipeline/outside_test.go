package pipeline_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"longship/pipeline"
	"longship/pipeline/stagetest"
)

// A module of one's own can name every type that it meets: none of them is internal.
func TestNothingInternalInSight(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		if seen[typ] {
			return
		}
		seen[typ] = true
		if strings.Contains("/"+typ.PkgPath()+"/", "longship/internal/") {
			t.Errorf("%v is in sight", typ)
		}
		if typ.PkgPath() != "" && !strings.HasPrefix(typ.PkgPath(), "longship/") {
			return // foreign types answer for themselves
		}
		for i := range typ.NumMethod() {
			visit(typ.Method(i).Type)
		}
		switch typ.Kind() {
		case reflect.Struct:
			for i := range typ.NumField() {
				if f := typ.Field(i); f.IsExported() {
					visit(f.Type)
				}
			}
		case reflect.Func:
			for i := range typ.NumIn() {
				visit(typ.In(i))
			}
			for i := range typ.NumOut() {
				visit(typ.Out(i))
			}
		case reflect.Map:
			visit(typ.Key())
			visit(typ.Elem())
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
			visit(typ.Elem())
			if typ.Kind() == reflect.Pointer {
				for i := range typ.NumMethod() {
					visit(typ.Method(i).Type)
				}
			}
		}
	}
	for _, v := range []any{
		pipeline.Factory{}, &pipeline.Env{}, pipeline.Options{}, pipeline.RunOptions{}, &pipeline.Registry{}, &pipeline.Pipeline{},
		pipeline.Compose, pipeline.NewRegistry, pipeline.Describe, &pipeline.ConfigError{}, &pipeline.StageError{}, &pipeline.FieldError{},
		pipeline.NewIn[word], pipeline.NewOut[word], pipeline.NewLend[word], pipeline.NewBorrow[word], pipeline.Each[word], pipeline.Shared[word],
		stagetest.Run, stagetest.Conformance, stagetest.Collect[word],
	} {
		visit(reflect.TypeOf(v))
	}
	if len(seen) < 50 {
		t.Errorf("only %d types were seen", len(seen))
	}
}

// The contract from outside: a stage of one's own uses all that Settings offers.
func TestSettingsFromOutside(t *testing.T) {
	f := pipeline.Factory{
		Type: "mine", Summary: "uses everything",
		Default: func() any { return &struct{}{} },
		New: func(set pipeline.Settings, _ any) (pipeline.Stage, error) {
			return runs(func(ctx context.Context) error {
				v, err := pipeline.Shared(ctx, set.Env, "key", func(context.Context) (int, error) { return 7, nil })
				if err != nil {
					return err
				}
				set.Progress(ctx, 1, 2, "things")
				set.SetAside(ctx, "thing", context.DeadlineExceeded)
				set.Summarise("value", v)
				set.Log.Info("said")
				return nil
			}), nil
		},
	}
	o := stagetest.Run(t, f, "")
	if o.Summary()["value"] != 7 || len(o.SetAside()) != 1 || len(o.Events) != 2 || o.Env.Seed != 42 {
		t.Errorf("outcome %+v", o)
	}
}

type runs func(context.Context) error

func (runs) Ports() []pipeline.Port          { return nil }
func (f runs) Run(ctx context.Context) error { return f(ctx) }
