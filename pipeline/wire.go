package pipeline

import (
	"fmt"
	"reflect"
	"strings"
)

// wiring finds the edges of a pipeline. Only earlier stages can be sources, so
// the graph has no cycle.
type wiring struct {
	nodes  []*node
	reg    *Registry
	faults *faults
	feeds  map[*port][]*node     // what each output feeds
	failed map[reflect.Type]bool // types of which an input found no source
}

// wire sets the edges of all nodes by the wiring rule and adds every fault.
func wire(reg *Registry, nodes []*node, f *faults) {
	w := &wiring{nodes: nodes, reg: reg, faults: f, feeds: map[*port][]*node{}, failed: map[reflect.Type]bool{}}
	for i := range nodes {
		w.stage(i)
	}
	w.looseEnds()
	w.carried()
}

// end is an output of a stage.
type end struct {
	node *node
	out  Port
}

func (e end) String() string { return e.node.id + "." + e.out.Name() }

// stage finds the sources of every input of stage i.
func (w *wiring) stage(i int) {
	n := w.nodes[i]
	ins := n.inputPorts()
	w.checkPortNames(n, ins)
	short, shortOK := w.lookup(i, n.in.any)
	fits := make([]bool, len(short))
	for _, in := range ins {
		refs, said := n.in.ports[in.Name()]
		var sources []end
		ok := shortOK
		switch {
		case said:
			sources, ok = w.named(i, in, refs)
		case len(n.in.any) > 0:
			for k, s := range short {
				if e, found := w.pick(n, in, s, &ok); found {
					sources, fits[k] = append(sources, e), true
				}
			}
		}
		if len(sources) == 0 && ok && !said {
			sources = w.nearest(i, in)
		}
		if !ok || !w.connect(n, in, sources) {
			w.failed[in.Elem()] = true
		}
	}
	for k, s := range short {
		if !fits[k] && shortOK {
			w.faults.add(s.ref.at, "in: %s: none of its outputs (%s) fits an input of stage %s (%s)",
				s.ref.name, portList(s.outs), n.id, portList(ins))
		}
	}
}

// checkPortNames refuses `in: {port: …}` of ports that n has not.
func (w *wiring) checkPortNames(n *node, ins []Port) {
	for name := range n.in.ports {
		if findPort(ins, name) == nil {
			w.faults.add(n.in.at[name], "stage %s has no input %q%s", n.id, name, hint(name, portNames(ins)))
		}
	}
}

// found is a ref that names an earlier stage, and the outputs that it may mean.
type found struct {
	ref  ref
	node *node
	outs []Port
}

// lookup resolves refs of stage i; false where one names nothing that may be named.
func (w *wiring) lookup(i int, refs []ref) ([]found, bool) {
	ok := true
	var list []found
	seen := map[string]bool{}
	for _, r := range refs {
		f, good := w.find(i, r)
		if good && seen[r.name] {
			w.faults.add(r.at, "in: %s is named twice", r.name)
			good = false
		}
		seen[r.name] = true
		ok = ok && good
		list = append(list, f)
	}
	return list, ok
}

func (w *wiring) find(i int, r ref) (found, bool) {
	id, portName := r.split()
	var ids []string
	for j, m := range w.nodes {
		if m.id != id {
			if j < i {
				ids = append(ids, m.id)
			}
			continue
		}
		if j >= i {
			w.faults.add(r.at, "in: %s does not stand before stage %s: only earlier stages can be named", id, w.nodes[i].id)
			return found{ref: r}, false
		}
		outs := m.outputPorts()
		if portName == "" {
			return found{r, m, outs}, true
		}
		if p := findPort(outs, portName); p != nil {
			return found{r, m, []Port{p}}, true
		}
		w.faults.add(r.at, "in: %s: stage %s has no output %q%s", r.name, id, portName, hint(portName, portNames(outs)))
		return found{ref: r}, false
	}
	w.faults.add(r.at, "in: there is no earlier stage %q%s", id, hint(id, ids))
	return found{ref: r}, false
}

// named resolves the refs of one input.
func (w *wiring) named(i int, in Port, refs []ref) ([]end, bool) {
	n := w.nodes[i]
	list, ok := w.lookup(i, refs)
	if !ok {
		return nil, false
	}
	var sources []end
	for _, s := range list {
		e, fits := w.pick(n, in, s, &ok)
		if !fits && ok {
			w.faults.add(s.ref.at, "in: %s: none of its outputs (%s) fits input %s of stage %s (%s)",
				s.ref.name, portList(s.outs), in.Name(), n.id, typeName(in))
			ok = false
		}
		sources = append(sources, e)
	}
	return sources, ok
}

// pick chooses the output of s that fits the input; ok becomes false where several do.
func (w *wiring) pick(n *node, in Port, s found, ok *bool) (end, bool) {
	var fitting []Port
	for _, out := range s.outs {
		if in.port().fits(out.port()) {
			fitting = append(fitting, out)
		}
	}
	switch len(fitting) {
	case 0:
		return end{}, false
	case 1:
		return end{s.node, fitting[0]}, true
	}
	w.faults.add(s.ref.at, "in: stage %s has several outputs that fit input %s of stage %s: write %s.%s or %s.%s",
		s.node.id, in.Name(), n.id, s.node.id, fitting[0].Name(), s.node.id, fitting[1].Name())
	*ok = false
	return end{}, true
}

// nearest returns the nearest earlier output of the input's type.
func (w *wiring) nearest(i int, in Port) []end {
	for j := i - 1; j >= 0; j-- {
		outs := w.nodes[j].outputPorts()
		for k := len(outs) - 1; k >= 0; k-- {
			if in.port().fits(outs[k].port()) {
				return []end{{w.nodes[j], outs[k]}}
			}
		}
	}
	return nil
}

// connect makes the edges of one input; false where it may not be wired so.
func (w *wiring) connect(n *node, in Port, sources []end) bool {
	if len(sources) == 0 {
		if in.port().optional {
			return true
		}
		w.faults.add(n.at, "stage %s: input %s (%s) has no source: %s", n.id, in.Name(), typeName(in), w.whereFrom(n, in))
		return false
	}
	if p := in.port(); (p.single || p.dir == borrower) && len(sources) > 1 {
		w.faults.add(n.at, "stage %s: input %s takes one source only", n.id, in.Name())
		return false
	}
	ok := true
	for _, s := range sources {
		p := s.out.port()
		if users := w.feeds[p]; len(users) > 0 && p.dir == output && !p.message {
			w.faults.add(n.at, "stage %s: output %s of stage %s goes to stage %s already%s: a %s is handed over, so it feeds one input only",
				n.id, s.out.Name(), s.node.id, users[0].id, users[0].at.line(), typeName(s.out))
			ok = false
			continue
		}
		w.feeds[p] = append(w.feeds[p], n)
		n.edges = append(n.edges, edge{s.node, s.out, in})
	}
	return ok
}

// whereFrom says what to do for an input without a source.
func (w *wiring) whereFrom(n *node, in Port) string {
	if refs, said := n.in.ports[in.Name()]; said && len(refs) == 0 {
		return "its `in:` is empty"
	}
	for _, m := range w.nodes {
		for _, out := range m.outputPorts() {
			if m != n && in.port().fits(out.port()) {
				return fmt.Sprintf("stage %s%s gives it, but stands later; move it before stage %s", m.id, m.at.line(), n.id)
			}
		}
	}
	types := w.reg.typesWith(func(p Port) bool { return in.port().fits(p.port()) })
	if len(types) == 0 {
		return "no stage gives it"
	}
	return fmt.Sprintf("put a %s stage before it", strings.Join(types, " or "))
}

func (n *node) inputPorts() (ins []Port) {
	for _, p := range n.ports {
		if p.port().takes() {
			ins = append(ins, p)
		}
	}
	return ins
}

func (n *node) outputPorts() (outs []Port) {
	for _, p := range n.ports {
		if !p.port().takes() {
			outs = append(outs, p)
		}
	}
	return outs
}

func findPort(ports []Port, name string) Port {
	for _, p := range ports {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

func portNames(ports []Port) []string {
	names := make([]string, len(ports))
	for i, p := range ports {
		names[i] = p.Name()
	}
	return names
}

// portList lists ports with their types, for messages.
func portList(ports []Port) string {
	if len(ports) == 0 {
		return "none"
	}
	parts := make([]string, len(ports))
	for i, p := range ports {
		parts[i] = p.Name() + ": " + typeName(p)
	}
	return strings.Join(parts, ", ")
}
