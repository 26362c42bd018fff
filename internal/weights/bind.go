package weights

import (
	"errors"
	"fmt"
	"slices"

	"longship/internal/safetensors"
)

// Target is a weight that a model wants.
type Target struct {
	Name  string // the model's name for it
	Shape []int  // trailing ones do not count: a file's [C, C, 1, 1] is [C, C]
	Parts []Part // what it is made of, rows one below the other; none: all rows of the tensor called Name
}

// Part is rows [Lo, Hi) of a tensor of the file; Hi 0 stands for all rows.
type Part struct {
	Tensor string
	Lo, Hi int
}

// Bound are the weights of a model, found in its files.
type Bound struct {
	byName map[string]Weight
	order  []string
}

// Weight returns the weight of that name. It panics if no Target had the name.
func (b *Bound) Weight(name string) Weight {
	w, ok := b.byName[name]
	if !ok {
		panic(fmt.Sprintf("weights: %q was not bound", name))
	}
	return w
}

// Names returns the names of the weights in the order of the Targets.
func (b *Bound) Names() []string { return b.order }

// faultsShown is how many faults of a file an error lists before it counts the rest.
const faultsShown = 8

// Bind finds the targets in the set. A tensor of the set that no target uses is
// an error unless ignore accepts its name (nil accepts none).
func Bind(set *safetensors.Set, targets []Target, ignore func(name string) bool) (*Bound, error) {
	b := &Bound{byName: map[string]Weight{}}
	used := map[string]bool{}
	var faults []error
	for _, t := range targets {
		w, err := bind(set, t, used)
		if err != nil {
			faults = append(faults, err)
		}
		b.byName[t.Name] = w
		b.order = append(b.order, t.Name)
	}
	for _, name := range set.Names() {
		if !used[name] && !isScaleOf(name, used) && (ignore == nil || !ignore(name)) {
			x, _ := set.Tensor(name)
			faults = append(faults, x.Errorf("no part of this model has that name"))
		}
	}
	if n := len(faults); n > faultsShown {
		faults = append(faults[:faultsShown:faultsShown], fmt.Errorf("and %d faults more", n-faultsShown))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("weights in %s do not fit the model: %w", set.Path(), errors.Join(faults...))
	}
	return b, nil
}

// bind finds one target, and notes what it uses of the set.
func bind(set *safetensors.Set, t Target, used map[string]bool) (Weight, error) {
	parts := t.Parts
	if len(parts) == 0 {
		parts = []Part{{Tensor: t.Name}}
	}
	w := Weight{Name: t.Name, Shape: t.Shape}
	var missing []string
	for _, p := range parts {
		used[p.Tensor] = true
		x, ok := set.Tensor(p.Tensor)
		if !ok {
			if !slices.Contains(missing, p.Tensor) {
				missing = append(missing, p.Tensor)
			}
			continue
		}
		piece, err := newPiece(set, x, p)
		if err != nil {
			return w, err
		}
		w.pieces = append(w.pieces, piece)
	}
	if len(missing) > 0 {
		return w, fmt.Errorf("tensor %q is missing (for %s)", missing, t.Name)
	}
	return w, w.check()
}

// trim returns the shape without trailing ones.
func trim(shape []int) []int {
	for len(shape) > 0 && shape[len(shape)-1] == 1 {
		shape = shape[:len(shape)-1]
	}
	return shape
}
