package pipeline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Limits of a pipeline file, against alias bombs and nonsense.
const (
	maxDepth = 64
	maxNodes = 100_000 // aliases counted as often as they are used
)

// tree is a YAML document made plain: aliases and merge keys are expanded,
// environment variables put in, and no mapping has a key twice. All nodes are
// its own, so it may be changed.
type tree struct {
	file   string
	root   *yaml.Node            // nil where the document cannot be used at all
	option map[*yaml.Node]string // the option that set a node, where not the file
	faults *faults
	getenv func(string) (string, bool)
	nodes  int
}

// parseTree reads the one document of src.
func parseTree(src []byte, file string, getenv func(string) (string, bool)) *tree {
	t := &tree{file: file, option: map[*yaml.Node]string{}, faults: &faults{}, getenv: getenv}
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			t.faults.add(Place{File: file}, "the file is empty: a pipeline needs at least `stages:`")
		} else {
			t.syntax(src, err)
		}
		return t
	}
	if err := dec.Decode(&second); err == nil {
		t.faults.add(t.place(&second), "a second document begins here: a pipeline is one")
	} else if !errors.Is(err, io.EOF) {
		t.syntax(src, err)
	}
	root := doc.Content[0]
	if root.Kind == yaml.AliasNode {
		root = root.Alias
	}
	if root.Kind != yaml.MappingNode {
		t.faults.add(t.place(root), "a pipeline is a mapping with `stages:`, not %s", kindName(root))
		return t
	}
	if t.root = t.expand(root, 0); t.nodes >= maxNodes {
		t.root = nil // what is left of it would only give consequences
	}
	return t
}

var (
	syntaxLine    = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
)

// syntax turns an error of the YAML parser into a fault. The parser counts the
// lines of its own errors from 0 and those of its scanner from 1, and says
// nothing of the first line.
func (t *tree) syntax(src []byte, err error) {
	p := Place{File: t.file, Line: 1, Col: 1}
	msg := err.Error()
	if m := syntaxLine.FindStringSubmatch(msg); m != nil {
		msg = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			p.Line = n
			if strings.HasPrefix(msg, "did not find expected") {
				p.Line++
			}
		}
	}
	if m := unknownAnchor.FindStringSubmatch(msg); m != nil { // comes without a place
		alias := regexp.MustCompile(`\*` + regexp.QuoteMeta(m[1]) + `([^\w-]|$)`)
		if at := alias.FindIndex(src); at != nil {
			before := string(src[:at[0]])
			p.Line = 1 + strings.Count(before, "\n")
			p.Col = 1 + utf8.RuneCountInString(before[strings.LastIndex(before, "\n")+1:])
		}
	}
	switch {
	case strings.Contains(msg, "unknown escape character"):
		msg += "; a backslash in double quotes begins an escape: write the path in single quotes"
	case strings.Contains(msg, "cannot start any token") && tabAt(src, p.Line, p.Col):
		msg = "a tab cannot indent a line or start a value: use spaces"
	case !utf8.Valid(src):
		valid := src[:len(src)-len(bytes.TrimLeftFunc(src, func(r rune) bool { return r != utf8.RuneError }))]
		p.Line = 1 + bytes.Count(valid, []byte("\n"))
		msg = "the file is not UTF-8 text"
	}
	t.faults.add(p, "YAML: %s", msg)
}

func (t *tree) place(n *yaml.Node) Place {
	if o, ok := t.option[n]; ok {
		return Place{Option: o}
	}
	return Place{File: t.file, Line: n.Line, Col: n.Column}
}

// expand returns a plain copy of n, nil where it is refused.
func (t *tree) expand(n *yaml.Node, depth int) *yaml.Node {
	t.nodes++
	if t.nodes == maxNodes {
		t.faults.add(t.place(n), "too large: more than %d values, aliases counted as often as they are used", maxNodes)
	}
	if depth == maxDepth {
		t.faults.add(t.place(n), "nested too deeply: more than %d levels, or an alias inside its own anchor", maxDepth)
	}
	if t.nodes >= maxNodes || depth >= maxDepth {
		return nil
	}
	if n.Kind == yaml.AliasNode {
		return t.expand(n.Alias, depth+1)
	}
	c := &yaml.Node{Kind: n.Kind, Style: n.Style, Tag: n.Tag, Value: n.Value, Line: n.Line, Column: n.Column}
	switch n.Kind {
	case yaml.ScalarNode:
		t.substitute(c)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			if e := t.expand(item, depth+1); e != nil {
				c.Content = append(c.Content, e)
			}
		}
	case yaml.MappingNode:
		t.expandMap(n, c, depth)
	}
	return c
}

// expandMap fills c with the pairs of n; merged pairs come last and give way.
func (t *tree) expandMap(n, c *yaml.Node, depth int) {
	var merges []*yaml.Node
	seen := map[string]int{} // line of the key
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			t.faults.add(t.place(key), "a key must be a plain word, not %s", kindName(key))
			continue
		case key.ShortTag() == "!!merge":
			merges = append(merges, value)
			continue
		}
		if line, ok := seen[key.Value]; ok {
			t.faults.add(t.place(key), "key %q is written twice; the first is at line %d", key.Value, line)
			continue
		}
		seen[key.Value] = key.Line
		if v := t.expand(value, depth+1); v != nil {
			k := *key
			k.Anchor = ""
			c.Content = append(c.Content, &k, v)
		}
	}
	for _, m := range merges {
		t.merge(m, c, seen, depth)
	}
}

// merge adds the pairs of `<<: *a` or `<<: [*a, *b]` whose keys have not been seen.
func (t *tree) merge(value, c *yaml.Node, seen map[string]int, depth int) {
	v := t.expand(value, depth+1)
	if v == nil {
		return
	}
	from := []*yaml.Node{v}
	if v.Kind == yaml.SequenceNode {
		from = v.Content
	}
	for _, m := range from {
		if m.Kind != yaml.MappingNode {
			t.faults.add(t.place(m), "`<<` merges mappings, not %s", kindName(m))
			continue
		}
		for i := 0; i+1 < len(m.Content); i += 2 {
			key := m.Content[i]
			if _, ok := seen[key.Value]; !ok {
				seen[key.Value] = key.Line
				c.Content = append(c.Content, key, m.Content[i+1])
			}
		}
	}
}

var variable = regexp.MustCompile(`\$\$\{|\$\{([^}]*)\}?`)
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// substitute puts environment variables in place of ${NAME}; `$${` is a plain `${`.
func (t *tree) substitute(n *yaml.Node) {
	if !strings.Contains(n.Value, "${") {
		return
	}
	plain := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
	n.Value = variable.ReplaceAllStringFunc(n.Value, func(m string) string {
		if m == "$${" {
			return "${"
		}
		name, closed := strings.CutSuffix(m[2:], "}")
		if !closed || !variableName.MatchString(name) {
			t.faults.add(t.place(n), "%q is not a variable: write ${NAME}, or $${ for the characters themselves", m)
			return m
		}
		v, ok := t.getenv(name)
		if !ok {
			t.faults.add(t.place(n), "environment variable %s is not set", name)
		}
		return v
	})
	if plain {
		n.Tag = "" // what was text may be a number now
	}
}

// lookup returns the value of a key of a mapping, nil where there is none.
func lookup(m *yaml.Node, key string) *yaml.Node {
	_, v := pair(m, key)
	return v
}

// pair returns the key and value nodes of a key of a mapping.
func pair(m *yaml.Node, key string) (k, v *yaml.Node) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i], m.Content[i+1]
		}
	}
	return nil, nil
}

// kindName is how messages call the kind of a value.
func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "the number " + n.Value
	}
	return fmt.Sprintf("the text %q", n.Value)
}

// tabAt says whether a tab stands at a place of the source, or between it and
// the start of its line's text.
func tabAt(src []byte, line, col int) bool {
	lines := bytes.Split(src, []byte("\n"))
	if line < 1 || line > len(lines) {
		return false
	}
	text := lines[line-1]
	indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
	return bytes.ContainsRune(indent, '\t') || col >= 1 && col <= len(text) && text[col-1] == '\t'
}
