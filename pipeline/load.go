package pipeline

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"gopkg.in/yaml.v3"
)

// Options say how a pipeline is read. The zero value will do.
type Options struct {
	Set    []string                         // overrides "stages.<id>.<key>=value" and "<key>=value"; the value is YAML
	Log    hclog.Logger                     // no log where nil
	Dir    string                           // what paths are relative to; Load takes the file's folder, Parse the working directory
	File   string                           // name of the source in messages; Load takes the file's path
	Getenv func(name string) (string, bool) // os.LookupEnv where nil

	Programs Programs // starts the programs that the head's plugins names; none may be named where nil
}

// Pipeline is a checked pipeline. It runs once.
type Pipeline struct {
	Env   *Env
	nodes []*node
	log   hclog.Logger
	ran   atomic.Bool
}

// Load reads and checks a pipeline file. What is wrong with the pipeline itself
// is a *ConfigError that names every fault. Nothing but the file is read.
func (r *Registry) Load(path string, opts Options) (*Pipeline, error) {
	src, err := os.ReadFile(path)
	if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
		err = fmt.Errorf("%s is a folder; name the .yaml file in it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("read pipeline: %w", err)
	}
	if opts.Dir == "" {
		opts.Dir = filepath.Dir(path)
	}
	if opts.File == "" {
		opts.File = path
	}
	return r.Parse(src, opts)
}

// Parse checks a pipeline given as YAML; see Load.
func (r *Registry) Parse(src []byte, opts Options) (*Pipeline, error) {
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("find the folder of the pipeline: %w", err)
	}
	if opts.File == "" {
		opts.File = "pipeline.yaml"
	}
	if opts.Getenv == nil {
		opts.Getenv = os.LookupEnv
	}
	if opts.Log == nil {
		opts.Log = hclog.NewNullLogger()
	}
	l := &loader{reg: r, env: &Env{Dir: dir}, log: opts.Log}
	l.tree = parseTree(src, opts.File, opts.Getenv)
	if l.root != nil {
		for _, s := range opts.Set {
			l.override(s)
		}
		base := filepath.Base(opts.File)
		l.head(strings.TrimSuffix(base, filepath.Ext(base)))
		l.programs(opts.Programs)
		l.stages()
	}
	return l.finish()
}

// loader turns a tree into a pipeline.
type loader struct {
	*tree
	reg     *Registry
	env     *Env
	log     hclog.Logger
	nodes   []*node
	broken  bool // a stage could not be made: wiring would report consequences
	lacking bool // stages are missing for a fault that was told
}

// finish builds and wires the stages.
func (l *loader) finish() (*Pipeline, error) {
	build(l.env, l.log, l.nodes, l.faults)
	if !l.broken && !slices.ContainsFunc(l.nodes, func(n *node) bool { return n.stage == nil }) {
		wire(l.reg, l.nodes, l.faults)
	}
	if err := l.faults.err(); err != nil {
		return nil, err
	}
	config, err := canonical(l.env, l.nodes)
	if err != nil {
		return nil, err
	}
	l.env.Config = config
	return &Pipeline{Env: l.env, nodes: l.nodes, log: l.log}, nil
}

// head reads what stands above the stages.
func (l *loader) head(name string) {
	h := defaultHead(name)
	d := &decoder{tree: l.tree, reserved: map[string]bool{"stages": true}}
	d.structure(l.root, reflect.ValueOf(&h).Elem(), "")
	h.check(func(key, format string, args ...any) {
		l.faults.add(l.placeOf(l.root, key), format, args...)
	})
	h.into(l.env)
}

// stages reads the list of stages.
func (l *loader) stages() {
	list := lookup(l.root, "stages")
	switch {
	case list == nil:
		l.faults.add(Place{File: l.file, Line: 1, Col: 1}, "`stages:` is missing")
	case list.Kind != yaml.SequenceNode:
		l.faults.add(l.place(list), "stages: expected a list of stages, `- type: {…}`, not %s", kindName(list))
	case len(list.Content) == 0:
		l.faults.add(l.place(list), "stages: the list is empty")
	default:
		for _, entry := range list.Content {
			if n := l.stage(entry); n != nil {
				l.nodes = append(l.nodes, n)
			} else {
				l.broken = true
			}
		}
	}
}

// stage reads an entry, `- type`, `- type:` or `- type: {…}`; nil where it is none.
func (l *loader) stage(entry *yaml.Node) *node {
	typ, body := entryOf(entry)
	if typ == nil {
		l.faults.add(l.place(entry), "a stage is `- type` or `- type: {…}`, not %s", kindName(entry))
		return nil
	}
	if entry.Kind == yaml.MappingNode && len(entry.Content) > 2 {
		extra := entry.Content[2]
		l.faults.add(l.place(extra), "%q stands beside the stage type %q: indent it to put it below, or begin a stage of its own with `- `", extra.Value, typ.Value)
	}
	if body.Kind != yaml.MappingNode && body.ShortTag() != "!!null" {
		l.faults.add(l.place(body), "stage %s: expected a mapping of its keys, not %s", typ.Value, kindName(body))
		body = &yaml.Node{Kind: yaml.MappingNode, Line: typ.Line, Column: typ.Column}
	}
	factory, ok := l.reg.Lookup(typ.Value)
	if !ok && l.lacking {
		return nil
	}
	if !ok {
		types := l.reg.types()
		l.faults.add(l.place(typ), "unknown stage type %q%s", typ.Value, hint(typ.Value, types))
		near := nearest(typ.Value, types)
		if near == "" {
			return nil
		}
		factory, _ = l.reg.Lookup(near) // to find the faults further on
	}
	n := &node{id: factory.Type, factory: factory, cfg: factory.Default(), at: l.place(typ)}
	if !ok {
		n.id = typ.Value
	}
	if id := lookup(body, "id"); id != nil {
		if id.Kind == yaml.ScalarNode && id.Value != "" {
			n.id = id.Value
		} else {
			l.faults.add(l.place(id), "id: expected a name, not %s", kindName(id))
		}
	}
	if in := lookup(body, "in"); in != nil {
		n.in = l.inputs(in)
	}
	l.config(n, body)
	return n
}

// entryOf returns the type and the body of an entry; nil where it has no type.
func entryOf(entry *yaml.Node) (typ, body *yaml.Node) {
	switch {
	case entry.Kind == yaml.ScalarNode && entry.ShortTag() == "!!str":
		return entry, &yaml.Node{Kind: yaml.MappingNode, Line: entry.Line, Column: entry.Column}
	case entry.Kind == yaml.MappingNode && len(entry.Content) > 0:
		return entry.Content[0], entry.Content[1]
	}
	return nil, nil
}

// inputs reads `in:`.
func (l *loader) inputs(n *yaml.Node) inputs {
	in := inputs{ports: map[string][]ref{}, at: map[string]Place{}}
	if n.Kind != yaml.MappingNode {
		in.any = l.refs(n)
		if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
			l.faults.add(l.place(n), "in: the list is empty: name a stage, or leave `in:` out for the nearest")
		}
		return in
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		port := n.Content[i].Value
		in.ports[port] = l.refs(n.Content[i+1])
		in.at[port] = l.place(n.Content[i])
	}
	return in
}

// refs reads one name or a list of names.
func (l *loader) refs(n *yaml.Node) []ref {
	items := n.Content
	if n.Kind == yaml.ScalarNode {
		if n.ShortTag() == "!!null" {
			return nil
		}
		items = []*yaml.Node{n}
	}
	var refs []ref
	for _, item := range items {
		if n.Kind == yaml.MappingNode || item.Kind != yaml.ScalarNode || item.Value == "" {
			l.faults.add(l.place(n), "in: expected the id of an earlier stage, or a list of ids")
			return nil
		}
		refs = append(refs, ref{item.Value, l.place(item)})
	}
	return refs
}

// config fills and checks the config of a stage.
func (l *loader) config(n *node, body *yaml.Node) {
	d := &decoder{tree: l.tree, reserved: map[string]bool{"id": true, "in": true}}
	if body.Kind == yaml.MappingNode {
		d.structure(body, reflect.ValueOf(n.cfg).Elem(), "")
	}
	resolvePaths(reflect.ValueOf(n.cfg), l.env.Dir)
	n.where = func(key string) Place { return l.placeOf(body, key) }
	n.head = func(key string) Place { return l.placeOf(l.root, key) }
	if v, ok := n.cfg.(Validator); ok {
		n.invalid(l.faults, v.Validate())
	}
}

// placeOf returns the place of the value at a path below n, or of what is
// nearest above it.
func (l *loader) placeOf(n *yaml.Node, path string) Place {
	at := n
	for _, part := range pathParts(path) {
		next := child(n, part)
		if next == nil {
			break
		}
		n, at = next, next
	}
	return l.place(at)
}
