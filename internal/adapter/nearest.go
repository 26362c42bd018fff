package adapter

import (
	"slices"
	"strings"

	"longship/internal/nn"
)

// nearest returns the three names, without block numbers, that a glob which
// matched nothing comes nearest to.
func nearest(modules []nn.Module, glob string) []string {
	var names []string
	for _, m := range modules {
		names = append(names, withoutBlock(m.Name))
		for _, p := range m.Parts {
			names = append(names, withoutBlock(p.Name))
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	want := withoutBlock(glob)
	slices.SortStableFunc(names, func(a, b string) int { return distance(want, a) - distance(want, b) })
	return names[:min(3, len(names))]
}

// withoutBlock takes the block off a name: "double_blocks.0.img_attn.qkv"
// becomes "img_attn.qkv".
func withoutBlock(name string) string {
	kind, rest, ok := strings.Cut(name, "blocks.")
	if !ok || strings.Contains(kind, ".") {
		return name
	}
	if _, module, ok := strings.Cut(rest, "."); ok {
		return module
	}
	return name
}

// distance is the number of single-letter edits that turn a into the nearest
// dotted ending of b (Levenshtein 1966).
func distance(a, b string) int {
	d := edits(a, b)
	if _, rest, ok := strings.Cut(b, "."); ok {
		d = min(d, distance(a, rest))
	}
	return d
}

func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
