package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// ConfigError is what is wrong with a pipeline: all of it, in the order of the
// file. Nothing has been run when it is returned.
type ConfigError struct{ Faults []Fault }

func (e *ConfigError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns what stages said of the faults.
func (e *ConfigError) Unwrap() []error {
	var errs []error
	for _, f := range e.Faults {
		if f.Err != nil {
			errs = append(errs, f.Err)
		}
	}
	return errs
}

// Fault is one fault and its place.
type Fault struct {
	Place
	Msg string
	Err error // what a stage said of it; nil for faults that the engine found
}

func (f Fault) String() string {
	if p := f.Place.String(); p != "" {
		return p + ": " + f.Msg
	}
	return f.Msg
}

// Place is where something was written: a position in a file, or an option
// such as "--set seed=x".
type Place struct {
	File      string
	Line, Col int    // from 1; 0 where there is none
	Option    string // in place of a position
}

func (p Place) String() string {
	switch {
	case p.Option != "":
		return p.Option
	case p.Line == 0:
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col)
}

// line says the place in the middle of a sentence.
func (p Place) line() string {
	switch {
	case p.Option != "":
		return " (" + p.Option + ")"
	case p.Line == 0:
		return ""
	}
	return fmt.Sprintf(" (line %d)", p.Line)
}

// faults collects faults.
type faults struct{ list []Fault }

func (f *faults) add(at Place, format string, args ...any) {
	f.list = append(f.list, Fault{at, fmt.Sprintf(format, args...), nil})
}

// err returns the faults in the order of the file, options last; nil where there is none.
func (f *faults) err() error {
	if len(f.list) == 0 {
		return nil
	}
	slices.SortStableFunc(f.list, func(a, b Fault) int {
		if a.Option != "" || b.Option != "" {
			return cmp.Compare(min(len(a.Option), 1), min(len(b.Option), 1))
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
	})
	return &ConfigError{slices.CompactFunc(f.list, func(a, b Fault) bool { return a.Place == b.Place && a.Msg == b.Msg })}
}

// hint returns `; did you mean "x"?` for the nearest of names, or the list of
// them where none is near.
func hint(word string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	if near := nearest(word, names); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return "; there are: " + strings.Join(names, ", ")
}

// nearest returns the name that is like word, "" where none is.
func nearest(word string, names []string) string {
	best, distance := "", len(word)+1
	for _, n := range names {
		d := editDistance(strings.ToLower(word), strings.ToLower(n))
		if d < distance && d <= max(1, (len(word)+1)/3) {
			best, distance = n, d
		}
	}
	return best
}

// editDistance is the least number of bytes to insert, delete, replace, or swap
// with their neighbour, to make b of a (optimal string alignment).
func editDistance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			replace := prev[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			cur[j] = min(replace, prev[j]+1, cur[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
