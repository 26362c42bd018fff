package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// plan is a random pipeline of stages that read and write messages of two types,
// together with what the wiring rule says of it, worked out the plain way.
type plan struct {
	stages []planStage
}

type planStage struct {
	ins, outs []int // types of its ports, 0 or 1
	in        []int // stages named in `in:`, none for the nearest
}

type typeA struct{}
type typeB struct{}

func (typeA) MessageType() string { return "a" }
func (typeB) MessageType() string { return "b" }

func drawPlan(t *rapid.T) plan {
	var p plan
	types := rapid.SliceOfNDistinct(rapid.IntRange(0, 1), 0, 2, rapid.ID[int])
	for i := range rapid.IntRange(1, 7).Draw(t, "stages") {
		s := planStage{ins: types.Draw(t, "inputs"), outs: types.Draw(t, "outputs")}
		if i > 0 && rapid.Bool().Draw(t, "named") {
			s.in = rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 1, 3, rapid.ID[int]).Draw(t, "in")
		}
		p.stages = append(p.stages, s)
	}
	return p
}

// sources returns what feeds the input of a type of stage i, and whether every
// name in its `in:` fits some input.
func (p plan) sources(i, typ int) []int {
	var found []int
	for _, j := range p.stages[i].in {
		if slices.Contains(p.stages[j].outs, typ) {
			found = append(found, j)
		}
	}
	for j := i - 1; j >= 0 && len(found) == 0; j-- {
		if slices.Contains(p.stages[j].outs, typ) {
			found = []int{j}
		}
	}
	return found
}

// valid says whether the rule accepts the plan.
func (p plan) valid() bool {
	feeds := map[[2]int]bool{}  // stage, type
	lastOutput := map[int]int{} // by type
	for i, s := range p.stages {
		for _, j := range s.in {
			if !slices.ContainsFunc(s.ins, func(typ int) bool { return slices.Contains(p.stages[j].outs, typ) }) {
				return false
			}
		}
		for _, typ := range s.ins {
			from := p.sources(i, typ)
			if len(from) == 0 {
				return false
			}
			for _, j := range from {
				feeds[[2]int{j, typ}] = true
			}
		}
		for _, typ := range s.outs {
			lastOutput[typ] = i
		}
	}
	for i, s := range p.stages {
		for _, typ := range s.outs {
			if feeds[[2]int{i, typ}] {
				continue
			}
			if lastOutput[typ] != i {
				return false
			}
			for j := i + 1; j < len(p.stages); j++ {
				if slices.Contains(p.stages[j].ins, typ) {
					return false // it took its type from elsewhere
				}
			}
		}
	}
	return true
}

// yaml writes the plan; stage i is of type s<i>.
func (p plan) yaml() string {
	var b strings.Builder
	b.WriteString("stages:\n")
	for i, s := range p.stages {
		var names []string
		for _, j := range s.in {
			names = append(names, fmt.Sprintf("s%d", j))
		}
		if len(names) == 0 {
			fmt.Fprintf(&b, "  - s%d\n", i)
		} else {
			fmt.Fprintf(&b, "  - s%d: {in: [%s]}\n", i, strings.Join(names, ", "))
		}
	}
	return b.String()
}

func (p plan) registry(t *rapid.T) *Registry {
	var list []Factory
	for i, ps := range p.stages {
		list = append(list, fakeFactory(fmt.Sprintf("s%d", i), func(s *fake) {
			for _, typ := range ps.ins {
				s.ports = append(s.ports, []Port{NewIn[typeA]("in_a"), NewIn[typeB]("in_b")}[typ])
			}
			for _, typ := range ps.outs {
				s.ports = append(s.ports, []Port{NewOut[typeA]("out_a"), NewOut[typeB]("out_b")}[typ])
			}
		}))
	}
	reg, err := NewRegistry(list...)
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// Every random pipeline is wired, or refused, as the plain reading of the rule
// says, and its canonical form is wired the same.
func TestWiringRule(t *testing.T) {
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		p := drawPlan(t)
		reg := p.registry(t)
		got, err := reg.Parse([]byte(p.yaml()), Options{})
		if (err == nil) != p.valid() {
			t.Fatalf("valid %v, error %v, of\n%s", p.valid(), err, p.yaml())
		}
		if err != nil {
			return
		}
		accepted++
		var want []string
		for i, s := range p.stages {
			for _, typ := range s.ins {
				for _, j := range p.sources(i, typ) {
					letter := []string{"a", "b"}[typ]
					want = append(want, fmt.Sprintf("s%d.out_%s -> s%d.in_%s", j, letter, i, letter))
				}
			}
		}
		if !slices.Equal(edges(got), want) {
			t.Fatalf("edges %q, want %q, of\n%s", edges(got), want, p.yaml())
		}
		again, err := reg.Parse(got.Env.Config, Options{})
		if err != nil {
			t.Fatalf("%v of\n%s", err, got.Env.Config)
		}
		if !slices.Equal(edges(again), want) {
			t.Fatalf("edges of the canonical form %q, want %q", edges(again), want)
		}
	})
	if accepted == 0 && !testing.Short() { // a short run draws only a few
		t.Error("no plan was accepted: the test shows nothing")
	}
}
