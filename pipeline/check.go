package pipeline

import (
	"context"
	"errors"
)

// Checker is implemented by stages that can find more faults before a run than
// their config shows: a folder that is not there, a model file that is cut. Check
// reads names and headers only, changes nothing, and returns every fault.
type Checker interface {
	Check(ctx context.Context) error
}

// Check has every stage that is a Checker look for faults, and returns all of
// them, each with its stage's id.
func (p *Pipeline) Check(ctx context.Context) error {
	var errs []error
	for _, n := range p.nodes {
		if c, ok := n.stage.(Checker); ok {
			if err := c.Check(ctx); err != nil {
				errs = append(errs, inStage(n.id, err))
			}
		}
	}
	return errors.Join(errs...)
}
