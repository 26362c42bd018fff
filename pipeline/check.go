package pipeline

import "context"

// Checker is implemented by stages that can find more faults before a run than
// their config shows: a folder that is not there, a model file that is cut. Check
// reads names and headers only, changes nothing, and returns every fault.
type Checker interface {
	Check(ctx context.Context) error
}

// Check has every stage that is a Checker look for faults. They are returned
// together as a *ConfigError; a FieldError is placed at its key.
func (p *Pipeline) Check(ctx context.Context) error {
	var f faults
	for _, n := range p.nodes {
		if c, ok := n.stage.(Checker); ok {
			n.invalid(&f, c.Check(ctx))
		}
	}
	return f.err()
}
