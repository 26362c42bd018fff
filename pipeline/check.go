package pipeline

import (
	"context"
	"slices"
)

// Checker is implemented by stages that can find more faults before a run than
// their config shows: a folder that is not there, a model file that is cut. Check
// reads names and headers only, changes nothing, and returns every fault; with
// Settings.Summarise it tells what it found.
type Checker interface {
	Check(ctx context.Context) error
}

// Check has every stage that is a Checker look for faults, and returns what they
// found. Faults are returned together as a *ConfigError, a FieldError and a
// HeadError placed at their keys. A pipeline can be run after it was checked.
func (p *Pipeline) Check(ctx context.Context) (found []SummaryEntry, err error) {
	var f faults
	for _, n := range p.nodes {
		if c, ok := n.stage.(Checker); ok {
			n.invalid(&f, c.Check(ctx))
		}
	}
	if err := p.Env.Close(); err != nil {
		f.add(Place{}, "close what was checked: %v", err)
	}
	return p.Env.rt.takeSummary(), f.err()
}

// takeSummary returns the summary and begins a new one.
func (r *runtime) takeSummary() []SummaryEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := slices.Clone(r.summary)
	r.summary = nil
	return found
}
