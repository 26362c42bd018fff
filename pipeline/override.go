package pipeline

import (
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// override applies one `--set path=value` to the tree. Keys that do not exist
// are written and then found by the decoder, which knows the right ones.
func (l *loader) override(set string) {
	option := Place{Option: "--set " + set}
	path, text, ok := strings.Cut(set, "=")
	keys := strings.Split(path, ".")
	if !ok || path == "" {
		l.faults.add(option, "expected key=value, such as seed=7 or stages.train.steps=5")
		return
	}
	value := l.optionValue(text, option)
	if value == nil {
		return
	}
	at := l.root
	if keys[0] == "stages" {
		if len(keys) < 3 {
			l.faults.add(option, "name a stage and a key: stages.<id>.<key>=value")
			return
		}
		if at = l.stageBody(keys[1], option); at == nil {
			return
		}
		keys = keys[2:]
	}
	l.assign(at, keys, value, option)
}

// optionValue parses the value of an option; environment variables are the shell's there.
func (l *loader) optionValue(text string, option Place) *yaml.Node {
	if strings.TrimSpace(text) == "" {
		return l.own(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str"}, option)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) == 0 {
		l.faults.add(option, "the value %q is not YAML; put it in quotes to make it a text", text)
		return nil
	}
	getenv, getter := l.getenv, func(name string) (string, bool) { return "${" + name + "}", true }
	l.getenv = getter
	defer func() { l.getenv = getenv }()
	value := l.expand(doc.Content[0], 0)
	if value == nil {
		return nil
	}
	return l.own(value, option)
}

// own marks n and all below it as set by an option.
func (l *loader) own(n *yaml.Node, option Place) *yaml.Node {
	l.option[n] = option.Option
	for _, c := range n.Content {
		l.own(c, option)
	}
	return n
}

// stageBody returns the mapping of the stage of an id, made where the entry has none.
func (l *loader) stageBody(id string, option Place) *yaml.Node {
	var ids []string
	list := lookup(l.root, "stages")
	if list == nil {
		return nil // reported as missing
	}
	for i, entry := range list.Content {
		typ, body := entryOf(entry)
		if typ == nil {
			continue
		}
		have := typ.Value
		if n := lookup(body, "id"); n != nil {
			have = n.Value
		}
		if ids = append(ids, have); have != id {
			continue
		}
		if body.Kind == yaml.MappingNode && entry.Kind == yaml.MappingNode {
			return body
		}
		body = &yaml.Node{Kind: yaml.MappingNode, Line: typ.Line, Column: typ.Column}
		list.Content[i] = &yaml.Node{Kind: yaml.MappingNode, Line: typ.Line, Column: typ.Column, Content: []*yaml.Node{typ, body}}
		return body
	}
	l.faults.add(option, "there is no stage %q%s", id, hint(id, ids))
	return nil
}

// assign sets the value at keys below n.
func (l *loader) assign(n *yaml.Node, keys []string, value *yaml.Node, option Place) {
	key, last := keys[0], len(keys) == 1
	slot := childSlot(n, key)
	switch {
	case slot == nil && n.Kind == yaml.MappingNode:
		next := value
		if !last {
			next = l.own(&yaml.Node{Kind: yaml.MappingNode}, option)
			l.assign(next, keys[1:], value, option)
		}
		n.Content = append(n.Content, l.own(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: key}, option), next)
	case slot == nil:
		l.faults.add(option, "there is no %q in %s", key, kindName(n))
	case last:
		*slot = value
	default:
		if (*slot).Kind == yaml.ScalarNode && (*slot).ShortTag() == "!!null" {
			*slot = l.own(&yaml.Node{Kind: yaml.MappingNode}, option)
		}
		l.assign(*slot, keys[1:], value, option)
	}
}

// childSlot returns where a mapping or a list keeps the value of a key or index.
func childSlot(n *yaml.Node, key string) **yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				return &n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Content) {
			return &n.Content[i]
		}
	}
	return nil
}

func child(n *yaml.Node, key string) *yaml.Node {
	if slot := childSlot(n, key); slot != nil {
		return *slot
	}
	return nil
}
