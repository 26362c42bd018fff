package pipeline

import (
	"fmt"
	"strings"
)

// Graph draws what was understood, in format "mermaid" or "dot": a box per
// stage, an arrow per edge with the type of its values. Messages go along plain
// arrows, handles along thick ones, loans along dotted ones.
func (p *Pipeline) Graph(format string) (string, error) {
	switch format {
	case "mermaid":
		return p.mermaid(), nil
	case "dot":
		return p.dot(), nil
	}
	return "", fmt.Errorf("graph format %q: there are mermaid and dot", format)
}

func (p *Pipeline) mermaid() string {
	names := p.boxNames()
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for _, n := range p.nodes {
		fmt.Fprintf(&b, "    %s[\"%s\"]\n", names[n], n.label())
	}
	for _, n := range p.nodes {
		for _, e := range n.edges {
			arrow := map[edgeKind]string{byMessage: "-->", byHandle: "==>", byLoan: "-.->"}[e.kind()]
			fmt.Fprintf(&b, "    %s %s|\"%s\"| %s\n", names[e.from], arrow, typeName(e.out), names[n])
		}
	}
	return b.String()
}

func (p *Pipeline) dot() string {
	names := p.boxNames()
	var b strings.Builder
	b.WriteString("digraph pipeline {\n    rankdir=LR\n    node [shape=box]\n")
	for _, n := range p.nodes {
		fmt.Fprintf(&b, "    %s [label=%q]\n", names[n], n.label())
	}
	for _, n := range p.nodes {
		for _, e := range n.edges {
			style := map[edgeKind]string{byMessage: "solid", byHandle: "bold", byLoan: "dashed"}[e.kind()]
			fmt.Fprintf(&b, "    %s -> %s [label=%q style=%s]\n", names[e.from], names[n], typeName(e.out), style)
		}
	}
	b.WriteString("}\n")
	return b.String()
}

// boxNames names the boxes by what both languages take as a word.
func (p *Pipeline) boxNames() map[*node]string {
	names := map[*node]string{}
	for i, n := range p.nodes {
		names[n] = fmt.Sprintf("s%d", i+1)
	}
	return names
}

// label is a stage's id, with its type where the id does not say it.
func (n *node) label() string {
	if n.id == n.factory.Type {
		return n.id
	}
	return n.id + " (" + n.factory.Type + ")"
}

// edgeKind is how values go along an edge.
type edgeKind int

const (
	byMessage edgeKind = iota
	byHandle
	byLoan
)

func (e edge) kind() edgeKind {
	p := e.out.port()
	switch {
	case p.dir == lender:
		return byLoan
	case p.message:
		return byMessage
	}
	return byHandle
}
