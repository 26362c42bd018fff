// Package stagetest tests one stage: it feeds its inputs, collects its outputs
// and runs it in the real engine, from the YAML that a user would write.
//
//	got := stagetest.Collect[port.Sample]("samples")
//	stagetest.Run(t, latents.Factory(), `{cache: ./cache}`,
//		stagetest.Feed("samples", a, b), got)
//	// got.Values holds what the stage sent
//
// Conformance holds the rules that every stage keeps.
package stagetest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gopkg.in/yaml.v3"

	"longship/pipeline"
)

// Timeout ends a run that hangs.
const Timeout = 30 * time.Second

// Outcome is what came of a run.
type Outcome struct {
	Err    error // of the run
	Result *pipeline.Result
	Events []pipeline.Event // in order
	Env    *pipeline.Env    // Env.Dir and Env.Output are temporary folders unless Dir was given
}

// SetAside returns the items that were set aside.
func (o *Outcome) SetAside() []string {
	var items []string
	for _, s := range o.Result.SetAside {
		items = append(items, s.Item)
	}
	return items
}

// Summary returns the values of the summary by key.
func (o *Outcome) Summary() map[string]any {
	m := map[string]any{}
	for _, e := range o.Result.Summary {
		m[e.Key] = e.Value
	}
	return m
}

// Option adds to a run: Feed, Collect, Lend, BorrowAt, Head, Dir, Signals, Log.
type Option interface{ apply(*harness) }

type optionFunc func(*harness)

func (f optionFunc) apply(h *harness) { f(h) }

// harness is a run being put together.
type harness struct {
	dir     string
	head    string
	feeders map[string]pipeline.Factory // by the port they feed
	takers  map[string]pipeline.Factory // by the port they read
	signals <-chan os.Signal
	log     hclog.Logger
}

// Head adds lines to the head of the pipeline, such as `model: {path: ./m}`.
func Head(yaml string) Option { return optionFunc(func(h *harness) { h.head += yaml + "\n" }) }

// Dir is the folder that paths are relative to, in place of a temporary one.
func Dir(dir string) Option { return optionFunc(func(h *harness) { h.dir = dir }) }

// Signals stops the run: softly at the first value, at once at the second.
func Signals(c <-chan os.Signal) Option { return optionFunc(func(h *harness) { h.signals = c }) }

// Log logs to log in place of the test's output.
func Log(log hclog.Logger) Option { return optionFunc(func(h *harness) { h.log = log }) }

// Run runs one stage and fails the test if the run fails.
func Run(t testing.TB, f pipeline.Factory, config string, opts ...Option) *Outcome {
	t.Helper()
	o := Try(t, f, config, opts...)
	if o.Err != nil {
		t.Fatalf("run: %v", o.Err)
	}
	return o
}

// Try runs one stage; config is the YAML mapping of its keys, "" for defaults.
// A fault of the config is the outcome's Err, with no Result.
func Try(t testing.TB, f pipeline.Factory, config string, opts ...Option) *Outcome {
	t.Helper()
	h := &harness{feeders: map[string]pipeline.Factory{}, takers: map[string]pipeline.Factory{}, log: testLog(t)}
	for _, o := range opts {
		o.apply(h)
	}
	if h.dir == "" {
		h.dir = t.TempDir()
	}
	p, err := h.load(f, config)
	if err != nil {
		return &Outcome{Err: err}
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), Timeout, fmt.Errorf("the run hangs: not over after %v", Timeout))
	defer cancel()
	o := &Outcome{Env: p.Env}
	o.Result, o.Err = p.Run(ctx, pipeline.RunOptions{
		Signals: h.signals,
		OnEvent: func(ev pipeline.Event) { o.Events = append(o.Events, ev) },
	})
	return o
}

// load makes the pipeline of feeders, the stage and takers.
func (h *harness) load(f pipeline.Factory, config string) (*pipeline.Pipeline, error) {
	ports, err := f.Ports()
	if err != nil {
		return nil, err
	}
	var body yaml.Node
	if err := yaml.Unmarshal([]byte(config), &body); err != nil {
		return nil, fmt.Errorf("config of the stage: %w", err)
	}
	keys := &yaml.Node{Kind: yaml.MappingNode}
	if len(body.Content) > 0 {
		keys = body.Content[0]
	}
	factories := []pipeline.Factory{f}
	in := map[string][]string{}
	var stages []any
	for _, p := range ports {
		if p.Direction != "in" && p.Direction != "borrow" {
			continue
		}
		in[p.Name] = []string{}
		if feeder, ok := h.feeders[p.Name]; ok {
			factories = append(factories, feeder)
			stages = append(stages, map[string]any{feeder.Type: map[string]any{"adds": p.Needs}})
			in[p.Name] = []string{feeder.Type}
		}
		delete(h.feeders, p.Name)
	}
	if len(in) > 0 && keys.Kind == yaml.MappingNode {
		var k, v yaml.Node
		k.SetString("in")
		if err := v.Encode(in); err != nil {
			return nil, err
		}
		keys.Content = append([]*yaml.Node{&k, &v}, keys.Content...)
	}
	stages = append(stages, map[string]any{f.Type: keys})
	for port, taker := range h.takers {
		factories = append(factories, taker)
		stages = append(stages, map[string]any{taker.Type: map[string]any{"in": f.Type + "." + port}})
	}
	for port := range h.feeders {
		return nil, fmt.Errorf("stage %s has no input %q to feed", f.Type, port)
	}
	reg, err := pipeline.NewRegistry(factories...)
	if err != nil {
		return nil, err
	}
	src, err := yaml.Marshal(map[string]any{"stages": stages})
	if err != nil {
		return nil, err
	}
	return reg.Parse(append([]byte(h.head), src...), pipeline.Options{Dir: h.dir, Log: h.log, File: f.Type + "_test.yaml"})
}

// testLog logs to the test's output.
func testLog(t testing.TB) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "stagetest", Level: hclog.Debug, Output: &lines{t: t}})
}

// lines writes each line to a test's log.
type lines struct {
	t   testing.TB
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.buf.Write(b)
	for {
		line, err := l.buf.ReadString('\n')
		if err != nil {
			l.buf.WriteString(line)
			return len(b), nil
		}
		l.t.Log(strings.TrimRight(line, "\n"))
	}
}

// Env returns an environment for a test that makes a stage itself: its folders
// are temporary, its seed is 42, and it is closed with the test.
func Env(t testing.TB) *pipeline.Env {
	dir := t.TempDir()
	env := &pipeline.Env{Name: "test", Device: "cpu", VRAM: "auto", Dir: dir, Output: dir, Seed: 42}
	t.Cleanup(func() {
		if err := env.Close(); err != nil {
			t.Errorf("close what was shared: %v", err)
		}
	})
	return env
}

// Settings returns the settings of a stage in env.
func Settings(t testing.TB, env *pipeline.Env, id string) pipeline.Settings {
	return pipeline.Settings{ID: id, Log: testLog(t), Env: env}
}
