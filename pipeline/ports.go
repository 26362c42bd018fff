package pipeline

import (
	"context"
	"reflect"
)

// direction is what a port does with its values.
type direction int

const (
	input direction = iota
	output
	lender
	borrower
)

func (d direction) String() string { return [...]string{"in", "out", "lend", "borrow"}[d] }

// port is what every kind of port has.
type port struct {
	name      string
	elem      reflect.Type
	dir       direction
	message   bool // its values travel as messages
	needs     []string
	adds      []string
	forwards  *port
	optional  bool
	single    bool
	capacity  int
	connected bool
}

func newPort[T any](dir direction, name string, opts []Option) *port {
	elem := reflect.TypeFor[T]()
	p := &port{name: name, elem: elem, dir: dir, message: elem.Implements(reflect.TypeFor[Message]())}
	for _, opt := range opts {
		opt(p)
	}
	return p
}

// takes says whether the port is on the receiving side.
func (p *port) takes() bool { return p.dir == input || p.dir == borrower }

// fits says whether an edge may lead from the output out to p.
func (p *port) fits(out *port) bool {
	return p.elem == out.elem && (p.dir == input && out.dir == output || p.dir == borrower && out.dir == lender)
}

// link is an edge about to be made: its ends, and what messages travel through.
type link struct {
	ctx      context.Context // of the run
	from, to string          // "stage.port"
	stage    string          // id of the receiving stage
	bus      Bus
}

// source is an output that an input can be bound to.
type source interface {
	Port
	bind(l link, to Port) error
	// finish says that the stage's Run has returned.
	finish(ctx context.Context) error
	// discard closes what nobody took.
	discard()
}

// sink is an input; stop says that the stage's Run has returned.
type sink interface {
	Port
	stop()
	starve() // see Starve
}
