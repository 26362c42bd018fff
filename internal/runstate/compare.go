package runstate

import (
	"fmt"
	"slices"
	"strings"

	"longship/stages/port"
)

// Change is a setting that differs between a checkpoint and the run that goes on from it.
type Change struct {
	Name     string
	Old, New string // "" where it was or is not there
}

func (c Change) String() string {
	return fmt.Sprintf("%s: %s -> %s", c.Name, orNone(c.Old), orNone(c.New))
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// RefusedError says which settings cannot change between runs that make one result.
type RefusedError struct {
	Name    string // of the run
	Step    int    // of the checkpoint
	Changes []Change
}

func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Changes))
	for i, c := range e.Changes {
		lines[i] = c.String()
	}
	return fmt.Sprintf("run %s cannot go on from step %d, since this has changed: %s; set it back, or start afresh with --restart (the old output is kept) or under another name",
		e.Name, e.Step, strings.Join(lines, "; "))
}

// Compare compares a checkpoint's settings with a run's. It returns those that
// differ and may, to be named in the log, in the order of their names; the
// error is a *RefusedError where one differs that may not.
func (c *Checkpoint) Compare(name string, now []port.Setting) (applied []Change, err error) {
	type pair struct{ old, new port.Setting }
	all := map[string]pair{}
	for _, s := range c.Settings {
		all[s.Name] = pair{old: s}
	}
	for _, s := range now {
		p := all[s.Name]
		p.new = s
		all[s.Name] = p
	}
	var refused []Change
	for key, p := range all {
		change := Change{Name: key, Old: p.old.Value, New: p.new.Value}
		switch {
		case p.old.Value == p.new.Value:
		case p.old.Fixed || p.new.Fixed:
			refused = append(refused, change)
		default:
			applied = append(applied, change)
		}
	}
	byName := func(a, b Change) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(applied, byName)
	slices.SortFunc(refused, byName)
	if len(refused) > 0 {
		return nil, &RefusedError{Name: name, Step: c.Step, Changes: refused}
	}
	return applied, nil
}

// CompareDataset counts the samples that are new and that are gone since the
// checkpoint. A sample that is repeated another number of times counts as both.
func (c *Checkpoint) CompareDataset(now []string) (added, gone int) {
	old := map[string]bool{}
	for _, id := range c.Dataset {
		old[id] = true
	}
	for _, id := range now {
		if old[id] {
			delete(old, id)
		} else {
			added++
		}
	}
	return added, len(old)
}
