package stagetest

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"gopkg.in/yaml.v3"

	"longship/pipeline"
)

// Limits of Conformance.
const (
	newWithin    = time.Second     // New touches nothing, so it is quick
	cancelWithin = 5 * time.Second // Run returns so soon after it is cancelled
)

// Conformance checks what every stage promises. config is a YAML mapping of the
// keys without which the stage cannot be made, "" if there are none; head adds
// lines to the pipeline's head.
func Conformance(t *testing.T, f pipeline.Factory, config string, head ...string) {
	t.Run("new is cheap and writes nothing", func(t *testing.T) {
		dir := t.TempDir()
		start := time.Now()
		alone(t, f, config, dir, head)
		if took := time.Since(start); took > newWithin {
			t.Errorf("took %v", took)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("the folder holds %v, error %v; want nothing", entries, err)
		}
	})
	t.Run("ports are fixed", func(t *testing.T) {
		a, b := alone(t, f, config, t.TempDir(), head), alone(t, f, config, t.TempDir(), head)
		if d := cmp.Diff(pipeline.Describe(a), pipeline.Describe(b)); d != "" {
			t.Errorf("two stages of one config differ:\n%s", d)
		}
		first, second := a.Ports(), a.Ports()
		for i := range first {
			if first[i] != second[i] {
				t.Errorf("Ports returns another port %d the second time", i)
			}
		}
	})
	t.Run("close without run, and twice", func(t *testing.T) {
		closeTwice(t, alone(t, f, config, t.TempDir(), head))
	})
	t.Run("check changes nothing", func(t *testing.T) {
		dir := t.TempDir()
		s, env, err := parse(f, config, dir, head)
		if err != nil {
			t.Fatal(err)
		}
		c, ok := s.(pipeline.Checker)
		if !ok {
			return
		}
		before := goleak.IgnoreCurrent()
		t.Logf("Check returned: %v", c.Check(context.Background()))
		if err := env.Close(); err != nil {
			t.Errorf("close what was shared: %v", err)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("the folder holds %v, error %v; want nothing", entries, err)
		}
		goleak.VerifyNone(t, before)
	})
	t.Run("an unknown key is refused", func(t *testing.T) {
		_, _, err := parse(f, config, t.TempDir(), head, "no_such_key")
		if err == nil || !strings.Contains(err.Error(), `unknown key "no_such_key"`) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("config survives its own YAML", func(t *testing.T) { roundTrip(t, f) })
	t.Run("cancelled before it starts", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		runCancelled(t, f, config, head, ctx)
	})
	t.Run("cancelled while it waits", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(50*time.Millisecond, cancel)
		runCancelled(t, f, config, head, ctx)
		cancel()
	})
}

// alone makes the stage of a config.
func alone(t *testing.T, f pipeline.Factory, config, dir string, head []string) pipeline.Stage {
	t.Helper()
	stage, _, err := parse(f, config, dir, head)
	if err != nil {
		t.Fatal(err)
	}
	return stage
}

// parse makes the stage of a config as the engine does, with further keys, and
// the environment that it was given.
func parse(f pipeline.Factory, config, dir string, head []string, keys ...string) (pipeline.Stage, *pipeline.Env, error) {
	var made pipeline.Stage
	var env *pipeline.Env
	spy := f
	spy.New = func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
		s, err := f.New(set, cfg)
		made, env = s, set.Env
		if err != nil {
			return nil, err
		}
		return portless{s}, nil
	}
	reg, err := pipeline.NewRegistry(spy)
	if err != nil {
		return nil, nil, err
	}
	var body map[string]any
	if err := yaml.Unmarshal([]byte(config), &body); err != nil {
		return nil, nil, err
	}
	if body == nil {
		body = map[string]any{}
	}
	for _, k := range keys {
		body[k] = 1
	}
	src, err := yaml.Marshal(map[string]any{"stages": []any{map[string]any{f.Type: body}}})
	if err != nil {
		return nil, nil, err
	}
	src = append([]byte(strings.Join(head, "\n")+"\n"), src...)
	if _, err := reg.Parse(src, pipeline.Options{Dir: dir}); err != nil {
		return nil, nil, err
	}
	return made, env, nil
}

// portless hides the ports, so that a stage alone is a whole pipeline.
type portless struct{ pipeline.Stage }

func (portless) Ports() []pipeline.Port { return nil }

// closeTwice closes the stage as the engine may.
func closeTwice(t *testing.T, s pipeline.Stage) {
	t.Helper()
	c, ok := s.(io.Closer)
	if !ok {
		return
	}
	for _, which := range []string{"first", "second"} {
		if err := c.Close(); err != nil {
			t.Errorf("%s Close: %v", which, err)
		}
	}
}

// runCancelled runs the stage with inputs on which nothing comes until ctx ends,
// and checks that it returns, closes and leaves no goroutine once what it shares
// with other stages is closed too.
func runCancelled(t *testing.T, f pipeline.Factory, config string, head []string, ctx context.Context) {
	t.Helper()
	s, env, err := parse(f, config, t.TempDir(), head)
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	pipeline.Starve(s)
	returned := make(chan error, 1)
	go func() { returned <- s.Run(ctx) }()
	<-ctx.Done()
	select {
	case err := <-returned:
		t.Logf("Run returned: %v", err)
	case <-time.After(cancelWithin):
		t.Fatalf("Run has not returned %v after it was cancelled", cancelWithin)
	}
	closeTwice(t, s)
	if err := env.Close(); err != nil {
		t.Errorf("close what was shared: %v", err)
	}
	goleak.VerifyNone(t, before)
}

// roundTrip checks that the default config, written as YAML, is read back equal:
// what a run's state records is what was meant.
func roundTrip(t *testing.T, f pipeline.Factory) {
	dir := t.TempDir()
	read := func(config any) string {
		var got any
		spy := f
		spy.New = func(_ pipeline.Settings, cfg any) (pipeline.Stage, error) {
			got = cfg
			return portless{}, nil
		}
		reg, err := pipeline.NewRegistry(spy)
		if err != nil {
			t.Fatal(err)
		}
		src, err := yaml.Marshal(map[string]any{"stages": []any{map[string]any{f.Type: config}}})
		if err != nil {
			t.Fatal(err)
		}
		// A key that must be given may be missing: only reading matters here.
		if _, err := reg.Parse(src, pipeline.Options{Dir: dir}); got == nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if d := cmp.Diff(read(map[string]any{}), read(f.Default())); d != "" {
		t.Errorf("the default config, written and read again, differs:\n%s", d)
	}
}
