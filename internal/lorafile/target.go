package lorafile

import (
	"cmp"
	"fmt"
	"slices"

	"longship/internal/safetensors"
)

// term is an entry that takes part in a target, times a weight.
type term struct {
	e      *entry
	weight float64
	lo, hi int   // the rows of the module that it is on
	cols   []int // the columns of B, and rows of A, that are not zero in the target's rows; nil all
}

func (t term) scale() float64 { return t.weight * t.e.scale }

func (t term) rank() int {
	if t.cols != nil {
		return len(t.cols)
	}
	return t.e.rank
}

// target is one low-rank pair to be written: the sum of its terms on rows
// [lo, hi) of a module.
type target struct {
	at     place
	lo, hi int
	in     int
	terms  []term
	shared bool // all terms have one A, and follow each other without a gap
	dtype  safetensors.DType
}

func (t *target) rank() int {
	if t.shared {
		return t.terms[0].rank()
	}
	n := 0
	for _, x := range t.terms {
		n += x.rank()
	}
	return n
}

// scale is what all terms are multiplied by; false where they differ.
func (t *target) scale() (float64, bool) {
	for _, x := range t.terms {
		if x.scale() != t.terms[0].scale() {
			return 1, false
		}
	}
	return t.terms[0].scale(), true
}

// targets plans the pairs that the sum of weighted adapters takes in a layout
// that knows whole modules (fused) or the parts of them.
func targets(adapters []*Adapter, weightsOf []float64, fused bool) ([]*target, error) {
	byModule, order := map[string][]term{}, []string(nil)
	for i, a := range adapters {
		for _, e := range a.entries {
			if e.kind == kindDoRA {
				return nil, fmt.Errorf("%s: %s: %w", a.Path, e.name(), errDoRA)
			}
			if e.rank > 2*min(e.in, e.out) && e.kind != kindLoRA {
				return nil, fmt.Errorf("%s: %s: as a LoRA this %s has rank %d, above the size of the weight", a.Path, e.name(), e.kind, e.rank)
			}
			t := term{e: e, weight: weightsOf[i], lo: 0, hi: e.out}
			if !e.whole() {
				t.lo, t.hi = e.part*e.out, (e.part+1)*e.out
			}
			if byModule[e.module] == nil {
				order = append(order, e.module)
			}
			byModule[e.module] = append(byModule[e.module], t)
		}
	}
	var all []*target
	for _, module := range order {
		terms := byModule[module]
		out := terms[0].e.out
		if !terms[0].e.whole() {
			out *= len(terms[0].e.parts)
		}
		for _, t := range terms {
			whole := t.e.out
			if !t.e.whole() {
				whole *= len(t.e.parts)
			}
			if whole != out || t.e.in != terms[0].e.in {
				return nil, fmt.Errorf("%s is [%d, %d] in one file and [%d, %d] in another: they are of different bases", module, out, terms[0].e.in, whole, t.e.in)
			}
		}
		ts, err := split(module, out, terms, fused)
		if err != nil {
			return nil, err
		}
		all = append(all, ts...)
	}
	return all, nil
}

// split makes the targets of one module.
func split(module string, out int, terms []term, fused bool) ([]*target, error) {
	at := terms[0].e.place
	slices.SortStableFunc(terms, func(a, b term) int { return cmp.Compare(a.lo, b.lo) })
	make1 := func(part, lo, hi int) (*target, error) {
		p := at
		p.part, p.swap = part, false
		t := &target{at: p, lo: lo, hi: hi, in: terms[0].e.in}
		for _, x := range terms {
			if x.hi <= lo || x.lo >= hi {
				continue
			}
			t.terms = append(t.terms, x)
			t.dtype = widest(t.dtype, x.e.valueType())
		}
		return t, nil
	}
	if fused || len(at.parts) == 1 {
		t, err := make1(-1, 0, out)
		if err != nil || len(t.terms) < 2 {
			return []*target{t}, err
		}
		_, same := t.scale()
		row := 0
		for _, x := range t.terms {
			same = same && x.lo == row
			row = x.hi
		}
		if same && row == out {
			t.shared, err = sameA(t.terms)
		}
		return []*target{t}, err
	}
	var ts []*target
	rows := out / len(at.parts)
	for k := range at.parts {
		t, err := make1(k, k*rows, (k+1)*rows)
		if err != nil {
			return nil, err
		}
		if len(t.terms) > 0 {
			ts = append(ts, t)
		}
	}
	return ts, unstack(ts)
}

// unstack finds whole pairs whose B is block-diagonal over the parts, as comes
// of joining pairs of the parts: each part then takes its own columns.
func unstack(ts []*target) error {
	if len(ts) < 2 {
		return nil
	}
	for i, x := range ts[0].terms {
		if !x.e.whole() || x.e.kind != kindLoRA || x.e.rank < len(ts) {
			continue
		}
		b, err := x.e.t.load(partB)
		if err != nil {
			return err
		}
		taken, disjoint := make([]int, b.cols), true
		cols := make([][]int, len(ts))
		for k, t := range ts {
			for j := range b.cols {
				used := false
				for r := t.lo; r < t.hi && !used; r++ {
					used = b.v[r*b.cols+j] != 0
				}
				if used {
					cols[k] = append(cols[k], j)
					taken[j]++
				}
			}
			disjoint = disjoint && len(cols[k]) > 0
		}
		for _, n := range taken {
			disjoint = disjoint && n <= 1
		}
		if !disjoint {
			continue
		}
		for k, t := range ts {
			if i < len(t.terms) && t.terms[i].e == x.e {
				t.terms[i].cols = cols[k]
			}
		}
	}
	return nil
}

// valueType is the widest type of an entry's factors.
func (e *entry) valueType() (d safetensors.DType) {
	for part, t := range e.t {
		if part != partAlpha {
			d = widest(d, t.DType)
		}
	}
	return d
}

// widest returns the type that holds both; float8 and float64 become what adapters are written in.
func widest(a, b safetensors.DType) safetensors.DType {
	as := func(d safetensors.DType) safetensors.DType {
		switch d {
		case "", safetensors.BF16, safetensors.F16:
			return d
		case safetensors.E5M2, safetensors.E4M3:
			return safetensors.BF16
		}
		return safetensors.F32
	}
	a, b = as(a), as(b)
	switch {
	case a == "" || a == b:
		return b
	case b == "":
		return a
	}
	return safetensors.F32
}

// pair computes A [rank, in] and B [hi-lo, rank]: the target is scale·B·A, where
// scale is 1 and B holds it if fold is set.
func (t *target) pair(fold bool) (a, b matrix, err error) {
	a, b = newMatrix(t.rank(), t.in), newMatrix(t.hi-t.lo, t.rank())
	col := 0
	for _, x := range t.terms {
		xa, xb, err := x.e.factors()
		if err != nil {
			return a, b, fmt.Errorf("%s: %w", x.e.name(), err)
		}
		if x.e.swap {
			half := xb.rows / 2 * xb.cols
			xb.v = append(slices.Clone(xb.v[half:]), xb.v[:half]...)
		}
		cols := x.cols
		if cols == nil {
			cols = make([]int, x.e.rank)
			for j := range cols {
				cols[j] = j
			}
		}
		s := float32(1)
		if fold {
			s = float32(x.scale())
		}
		for i, j := range cols {
			copy(a.row(col+i), xa.row(j))
		}
		for r := max(t.lo, x.lo); r < min(t.hi, x.hi); r++ {
			src, dst := xb.row(r-x.lo), b.row(r - t.lo)[col:]
			for i, j := range cols {
				dst[i] = src[j] * s
			}
		}
		if !t.shared {
			col += x.rank()
		}
	}
	return a, b, nil
}
