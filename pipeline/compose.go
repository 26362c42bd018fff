package pipeline

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"

	"github.com/hashicorp/go-hclog"
)

// Part is a stage of a pipeline put together in Go.
type Part struct {
	Factory Factory
	ID      string              // the type where empty
	Config  any                 // what Factory.Default returns, changed as wished; nil for the defaults
	In      map[string][]string // sources by input, as in `in:`; the nearest where an input is missing
}

// Compose makes a pipeline of parts, as Load makes one of a file, with the same
// checks. env is its head: an empty Name is "run", an empty Device or VRAM
// "auto", an empty Output "output"; Dir, what paths are relative to, is the
// working directory where empty. log may be nil.
func Compose(env *Env, log hclog.Logger, parts ...Part) (*Pipeline, error) {
	if log == nil {
		log = hclog.NewNullLogger()
	}
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the folder of the pipeline: %w", err)
	}
	env.Dir = dir
	l := &loader{tree: &tree{faults: &faults{}}, env: env, log: log}
	h := head{
		Name: cmp.Or(env.Name, "run"), Device: cmp.Or(env.Device, "auto"), VRAM: cmp.Or(env.VRAM, "auto"),
		Model: env.Model, Plugins: env.Plugins, Output: Path(cmp.Or(env.Output, "output")), Seed: env.Seed,
	}
	h.check(func(_, format string, args ...any) { l.faults.add(Place{}, format, args...) })
	h.into(env)

	var factories []Factory
	known := map[string]bool{}
	for _, p := range parts {
		if !known[p.Factory.Type] {
			known[p.Factory.Type] = true
			factories = append(factories, p.Factory)
		}
	}
	if l.reg, err = NewRegistry(factories...); err != nil {
		return nil, err
	}
	for _, p := range parts {
		n, err := p.node(env.Dir, l.faults)
		if err != nil {
			return nil, err
		}
		l.nodes = append(l.nodes, n)
	}
	return l.finish()
}

// node checks the part's config.
func (p Part) node(dir string, f *faults) (*node, error) {
	n := &node{id: cmp.Or(p.ID, p.Factory.Type), factory: p.Factory, cfg: p.Config}
	want := p.Factory.Default()
	if n.cfg == nil {
		n.cfg = want
	}
	if reflect.TypeOf(n.cfg) != reflect.TypeOf(want) {
		return nil, fmt.Errorf("stage %s: its config is a %T, not a %T", n.id, n.cfg, want)
	}
	resolvePaths(reflect.ValueOf(n.cfg), dir)
	if v, ok := n.cfg.(Validator); ok {
		n.invalid(f, v.Validate())
	}
	n.in.ports, n.in.at = map[string][]ref{}, map[string]Place{}
	for port, names := range p.In {
		for _, name := range names {
			n.in.ports[port] = append(n.in.ports[port], ref{name: name})
		}
	}
	return n, nil
}
