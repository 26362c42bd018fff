package pipeline

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// node is one stage of a pipeline being put together.
type node struct {
	id      string
	factory Factory
	cfg     any
	at      Place
	where   func(key string) Place // of a key of its config, or of what is nearest above it; nil without a file
	head    func(key string) Place // the same of a key of the pipeline's head
	in      inputs
	stage   Stage
	ports   []Port
	edges   []edge // that lead to its inputs: port by port, each in the order of its sources
}

// edge leads from an output to an input of a later stage.
type edge struct {
	from *node
	out  Port
	in   Port
}

// inputs is what `in:` says.
type inputs struct {
	any   []ref            // `in: a` and `in: [a, b]`: for the inputs of their type
	ports map[string][]ref // `in: {port: …}`
	at    map[string]Place // of the keys of ports
}

// ref names a source: the id of a stage, or "id.port".
type ref struct {
	name string
	at   Place
}

func (r ref) split() (id, port string) {
	id, port, _ = strings.Cut(r.name, ".")
	return id, port
}

var idPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)

// build makes the stages and asks them for their ports. Two stages of one id,
// or a New that fails, are faults.
func build(env *Env, log hclog.Logger, nodes []*node, f *faults) {
	byID := map[string]*node{}
	for _, n := range nodes {
		if !idPattern.MatchString(n.id) {
			f.add(n.at, "id %q: letters, digits, _ and - are allowed, a letter first", n.id)
			continue
		}
		if other, ok := byID[n.id]; ok {
			f.add(n.at, "id %q belongs to another stage already%s: give this one an id of its own, `- %s: {id: %s2}`", n.id, other.at.line(), n.factory.Type, n.factory.Type)
			continue
		}
		byID[n.id] = n
		stage, err := n.factory.New(Settings{ID: n.id, Log: log.Named(n.id), Env: env}, n.cfg)
		if err != nil {
			n.invalid(f, err)
			continue
		}
		n.stage = stage
		n.ports = stage.Ports()
		if err := checkPorts(n.ports); err != nil {
			f.add(n.at, "stage %s: %v", n.id, err)
		}
	}
}

// invalid adds each of the errors that err joins as a fault: a FieldError at its
// key, a HeadError at its key of the head, any other at the stage.
func (n *node) invalid(f *faults, err error) {
	if err == nil {
		return
	}
	if many := joined(err); many != nil {
		for _, e := range many {
			n.invalid(f, e)
		}
		return
	}
	if he := (*HeadError)(nil); errors.As(err, &he) {
		at := Place{}
		if n.head != nil {
			at = n.head(he.Path)
		}
		f.list = append(f.list, Fault{at, he.Error(), err})
		return
	}
	at := n.at
	if fe := (*FieldError)(nil); errors.As(err, &fe) && n.where != nil {
		at = n.where(fe.Path)
	}
	f.list = append(f.list, Fault{at, fmt.Sprintf("stage %s: %v", n.id, err), err})
}

// joined returns the errors that errors.Join joined; nil if err is none of its
// making. A fmt.Errorf with several %w is one error: it says more than they do.
func joined(err error) []error {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	if whole := errors.Join(many.Unwrap()...); whole == nil || whole.Error() != err.Error() {
		return nil
	}
	return many.Unwrap()
}

// checkPorts refuses two ports of one name.
func checkPorts(ports []Port) error {
	seen := map[string]bool{}
	for _, p := range ports {
		if seen[p.Name()] {
			return fmt.Errorf("two of its ports are named %q", p.Name())
		}
		seen[p.Name()] = true
	}
	return nil
}

// typeName is how messages call the type of a port: "port.Sample".
func typeName(p Port) string { return p.Elem().String() }
