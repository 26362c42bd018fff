package pipeline

import (
	"fmt"
	"reflect"

	"gopkg.in/yaml.v3"
)

// canonical writes the pipeline as understood: every default filled in, every
// id and every input's sources said, paths below the pipeline's folder relative
// to it. Read again, it gives the same pipeline.
func canonical(env *Env, nodes []*node) ([]byte, error) {
	h := head{env.Name, env.Device, env.VRAM, env.Model, env.Plugins, Path(env.Output), env.Seed}
	root, err := encodeConfig(&h, env.Dir)
	if err != nil {
		return nil, err
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, n := range nodes {
		body, err := encodeConfig(n.cfg, env.Dir)
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", n.id, err)
		}
		own := []*yaml.Node{text("id"), text(n.id)}
		if in := n.canonicalIn(); in != nil {
			own = append(own, text("in"), in)
		}
		body.Content = append(own, body.Content...)
		list.Content = append(list.Content, &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{text(n.factory.Type), body}})
	}
	root.Content = append(root.Content, text("stages"), list)
	return yaml.Marshal(root)
}

// canonicalIn writes the sources of every input by port; nil for a stage without inputs.
func (n *node) canonicalIn() *yaml.Node {
	m := &yaml.Node{Kind: yaml.MappingNode}
	for _, in := range n.inputPorts() {
		refs := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, name := range sourceNames(n, in, "") {
			refs.Content = append(refs.Content, text(name))
		}
		m.Content = append(m.Content, text(in.Name()), refs)
	}
	if len(m.Content) == 0 {
		return nil
	}
	return m
}

// encodeConfig writes the config that cfg points to, its paths relative to dir.
func encodeConfig(cfg any, dir string) (*yaml.Node, error) {
	v := reflect.ValueOf(cfg)
	relativePaths(v, dir)
	defer resolvePaths(v, dir)
	n := new(yaml.Node)
	if err := n.Encode(cfg); err != nil {
		return nil, fmt.Errorf("write config: %w", err)
	}
	return n, nil
}

func text(s string) *yaml.Node {
	n := new(yaml.Node)
	n.SetString(s)
	return n
}
