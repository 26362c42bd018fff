package pipeline

import (
	"fmt"
	"slices"
	"strings"
)

// looseEnds refuses outputs that feed nothing although a later input took its
// type from elsewhere, and those that are not the last of their type: two
// datasets, or two branches, are never silently one.
func (w *wiring) looseEnds() {
	for i, n := range w.nodes {
		for k, out := range n.outputPorts() {
			if len(w.feeds[out.port()]) > 0 || w.failed[out.Elem()] {
				continue
			}
			if m, in := w.laterInput(i, out); m != nil {
				w.faults.add(n.at, "output %s of stage %s feeds nothing, although stage %s%s takes its %s from %s: write `in: %s` there",
					out.Name(), n.id, m.id, m.at.line(), typeName(out), strings.Join(sourceNames(m, in, ""), ", "), w.inToWrite(m, in, end{n, out}))
			} else if other := w.laterOutput(i, k, out); other != nil {
				way := fmt.Sprintf("name both in the `in:` of a later stage, `in: [%s, %s]`", n.id, other.id)
				if len(w.reg.typesWith(func(p Port) bool { return p.port().fits(out.port()) })) == 0 {
					way = "no stage takes it, so there can be one only"
				}
				w.faults.add(n.at, "output %s of stage %s feeds nothing, although only the last output of its type may stay open and stage %s%s gives %s too: %s",
					out.Name(), n.id, other.id, other.at.line(), typeName(out), way)
			}
		}
	}
}

// laterInput returns the first later input that could have taken out and took
// something else.
func (w *wiring) laterInput(i int, out Port) (*node, Port) {
	for _, m := range w.nodes[i+1:] {
		for _, in := range m.inputPorts() {
			if in.port().fits(out.port()) && len(sourceNames(m, in, "")) > 0 {
				return m, in
			}
		}
	}
	return nil, nil
}

// laterOutput returns the stage of an output of the same type after output k of
// stage i.
func (w *wiring) laterOutput(i, k int, out Port) *node {
	for _, p := range w.nodes[i].outputPorts()[k+1:] {
		if p.Elem() == out.Elem() {
			return w.nodes[i]
		}
	}
	for _, m := range w.nodes[i+1:] {
		for _, p := range m.outputPorts() {
			if p.Elem() == out.Elem() {
				return m
			}
		}
	}
	return nil
}

// sourceNames returns what the input's sources are called in `in:`, by their
// stages alone where that is clear. extra, if any, comes first.
func sourceNames(m *node, in Port, extra string) []string {
	var names []string
	if extra != "" {
		names = append(names, extra)
	}
	for _, e := range m.edges {
		if e.in == in {
			names = append(names, refName(end{e.from, e.out}))
		}
	}
	return names
}

// refName names an output in `in:`: by its stage where that has one of the type.
func refName(e end) string {
	for _, p := range e.node.outputPorts() {
		if p != e.out && p.Elem() == e.out.Elem() {
			return e.node.id + "." + e.out.Name()
		}
	}
	return e.node.id
}

// inToWrite returns the `in:` that would bring the loose end to the input too.
// What is lent has one lender only, so it would come in place of the other.
func (w *wiring) inToWrite(m *node, in Port, loose end) string {
	text := refName(loose)
	if in.port().dir != borrower {
		text = "[" + strings.Join(sourceNames(m, in, refName(loose)), ", ") + "]"
	}
	for _, p := range m.inputPorts() {
		if p != in {
			return fmt.Sprintf("{%s: %s}", in.Name(), text)
		}
	}
	return text
}

// carried follows what values carry along the edges and refuses inputs that
// need more.
func (w *wiring) carried() {
	carries := map[*port][]string{} // by output, and by input: what all its sources carry
	for i, n := range w.nodes {
		for _, in := range n.inputPorts() {
			var has []string
			first := true
			for _, e := range n.edges {
				if e.in != in {
					continue
				}
				from := carries[e.out.port()]
				w.needs(i, in, e, from)
				if first {
					has, first = slices.Clone(from), false
				} else {
					has = slices.DeleteFunc(has, func(what string) bool { return !slices.Contains(from, what) })
				}
			}
			carries[in.port()] = has
		}
		for _, out := range n.outputPorts() {
			p := out.port()
			has := slices.Clone(p.adds)
			if p.forwards != nil {
				has = append(has, carries[p.forwards]...)
			}
			carries[p] = has
		}
	}
}

// needs refuses an edge whose values lack what the input of stage i needs.
func (w *wiring) needs(i int, in Port, e edge, has []string) {
	if w.failed[in.Elem()] {
		return // a source is missing further up
	}
	for _, what := range in.port().needs {
		if !slices.Contains(has, what) {
			w.faults.add(w.nodes[i].at, "stage %s needs %s: %s", w.nodes[i].id, what, w.whoAdds(i, in, e, what))
		}
	}
}

// whoAdds says where to put, or what to name, for the input of stage i to carry
// what it needs.
func (w *wiring) whoAdds(i int, in Port, e edge, what string) string {
	gives := func(p Port) bool { return p.Elem() == in.Elem() && slices.Contains(p.port().adds, what) }
	n := w.nodes[i]
	for j, m := range w.nodes {
		switch {
		case !slices.ContainsFunc(m.outputPorts(), gives):
		case j > i:
			return fmt.Sprintf("stage %s%s adds it, but stands later; move it between %s and %s", m.id, m.at.line(), e.from.id, n.id)
		case j > slices.Index(w.nodes, e.from):
			return fmt.Sprintf("stage %s%s adds it, but stage %s takes its %s from %s", m.id, m.at.line(), n.id, in.Name(), e.from.id)
		}
	}
	if types := w.reg.typesWith(gives); len(types) > 0 {
		return fmt.Sprintf("put a %s stage between %s and %s", strings.Join(types, " or "), e.from.id, n.id)
	}
	return "no stage adds it"
}
