package adapter

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"longship/internal/nn"
)

// Target is a place for an adapter: rows [Lo, Hi) of a module.
type Target struct {
	Module nn.Module
	Lo, Hi int
}

// Whole says whether the target is all of its module.
func (t Target) Whole() bool { return t.Lo == 0 && t.Hi == t.Module.Out }

// Name returns the canonical module's name, or where the target is one part of
// several that part's name.
func (t Target) Name() string {
	if t.Whole() {
		return t.Module.Name
	}
	for _, p := range t.Module.Parts {
		if p.Lo == t.Lo && p.Hi == t.Hi {
			return p.Name
		}
	}
	return fmt.Sprintf("%s[%d:%d]", t.Module.Name, t.Lo, t.Hi)
}

// Select returns the targets that globs choose among a model's modules, in the
// model's order; without targets all modules. A glob (as path.Match has it; *
// stands for any characters, dots too) must match a name whole, or from one of
// its dots on: "qkv", "img_attn.*" and "double_blocks.0.*" all match
// "double_blocks.0.img_attn.qkv". Canonical names are tried first, then the
// names of the diffusers layout, where "to_q" is a third of a fused module and
// gets an adapter of its own. What exclude matches is left out.
//
// A glob that matches nothing is an error that names the nearest; so is a module
// that is chosen both whole and in part. The error is a *SelectError.
func Select(modules []nn.Module, targets, exclude []string) ([]Target, error) {
	if len(targets) == 0 {
		targets = []string{"*"}
	}
	chosen := make([]choice, len(modules))
	for _, glob := range targets {
		if err := choose(modules, chosen, glob); err != nil {
			return nil, &SelectError{List: "targets", Err: err}
		}
	}
	for _, glob := range exclude {
		if err := remove(modules, chosen, glob); err != nil {
			return nil, &SelectError{List: "exclude", Err: err}
		}
	}
	var out []Target
	for i, m := range modules {
		if chosen[i].whole != "" {
			out = append(out, Target{Module: m, Lo: 0, Hi: m.Out})
		}
		for k, p := range m.Parts {
			if chosen[i].part(k) != "" {
				out = append(out, Target{Module: m, Lo: p.Lo, Hi: p.Hi})
			}
		}
	}
	if len(out) == 0 {
		return nil, &SelectError{List: "exclude", Err: fmt.Errorf("%s leaves none of the targets", quoted(exclude))}
	}
	return out, nil
}

// SelectError says which of the two lists of Select is at fault.
type SelectError struct {
	List string // "targets" or "exclude"
	Err  error
}

func (e *SelectError) Error() string { return e.List + ": " + e.Err.Error() }

// Unwrap returns the fault.
func (e *SelectError) Unwrap() error { return e.Err }

// choice says by which glob a module is chosen, whole or in parts.
type choice struct {
	whole string
	parts []string // by part; nil where none is chosen
}

func (c choice) part(k int) string {
	if c.parts == nil {
		return ""
	}
	return c.parts[k]
}

// choose marks what one glob matches.
func choose(modules []nn.Module, chosen []choice, glob string) error {
	whole, parts, err := find(modules, glob)
	if err != nil {
		return err
	}
	for _, i := range whole {
		chosen[i].whole = glob
	}
	for _, p := range parts {
		m := modules[p.module]
		if chosen[p.module].parts == nil {
			chosen[p.module].parts = make([]string, len(m.Parts))
		}
		chosen[p.module].parts[p.part] = glob
	}
	for i, c := range chosen {
		if c.whole != "" && c.parts != nil {
			by := c.parts[slices.IndexFunc(c.parts, func(s string) bool { return s != "" })]
			return fmt.Errorf("%q chooses all of %s and %q a part of it: keep one of them", c.whole, modules[i].Name, by)
		}
	}
	return nil
}

// remove takes away what one glob matches.
func remove(modules []nn.Module, chosen []choice, glob string) error {
	whole, parts, err := find(modules, glob)
	if err != nil {
		return err
	}
	for _, i := range whole {
		chosen[i] = choice{}
	}
	for _, p := range parts {
		c := &chosen[p.module]
		if c.whole != "" {
			return fmt.Errorf("%q is a part of %s, which is chosen whole by %q: choose its parts by name instead", glob, modules[p.module].Name, c.whole)
		}
		if c.parts != nil {
			c.parts[p.part] = ""
		}
	}
	return nil
}

type partOf struct{ module, part int }

// find returns what a glob matches: modules, by canonical name or by the name
// that a module has as a whole elsewhere, and parts of modules.
func find(modules []nn.Module, glob string) (whole []int, parts []partOf, err error) {
	if _, err := path.Match(glob, ""); err != nil || glob == "" {
		return nil, nil, fmt.Errorf("%q is not a glob", glob)
	}
	for i, m := range modules {
		if matches(glob, m.Name) {
			whole = append(whole, i)
		}
	}
	if whole != nil {
		return whole, nil, nil
	}
	for i, m := range modules {
		for k, p := range m.Parts {
			switch {
			case !matches(glob, p.Name):
			case len(m.Parts) == 1:
				whole = append(whole, i)
			default:
				parts = append(parts, partOf{i, k})
			}
		}
	}
	if whole == nil && parts == nil {
		return nil, nil, fmt.Errorf("%q matches no module; the nearest are %s", glob, quoted(nearest(modules, glob)))
	}
	return whole, parts, nil
}

// matches says whether glob matches name whole or from a dot on.
func matches(glob, name string) bool {
	for {
		if ok, _ := path.Match(glob, name); ok {
			return true
		}
		_, rest, more := strings.Cut(name, ".")
		if !more {
			return false
		}
		name = rest
	}
}

func quoted(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(q, ", ")
}
