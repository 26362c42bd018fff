package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"longship/cache"
	"longship/stages/port"
)

// mostNamed bounds lists in messages.
const mostNamed = 10

// report says what is used: images, buckets and duplicates.
func (s *stage) report(pictures []picture, samples []port.Sample) {
	held := 0
	for _, p := range pictures {
		if p.validation {
			held++
		}
	}
	s.set.Summarise("images used", len(pictures)-held)
	if held > 0 {
		s.set.Summarise("validation images", held)
	}
	buckets := map[port.Bucket]int{}
	for _, sample := range samples {
		buckets[sample.Bucket]++
	}
	sizes := slices.SortedFunc(maps.Keys(buckets), func(a, b port.Bucket) int {
		return cmp.Or(cmp.Compare(a.W*a.H, b.W*b.H), cmp.Compare(a.W, b.W))
	})
	lines := make([]string, len(sizes))
	for i, b := range sizes {
		lines[i] = fmt.Sprintf("%dx%d: %d", b.W, b.H, buckets[b])
	}
	s.set.Summarise("buckets", shorten(lines))
	s.set.Log.Info("images read", "used", len(pictures)-held, "validation", held, "buckets", shorten(lines))
	if same := duplicates(pictures); len(same) > 0 {
		s.set.Summarise("duplicates", shorten(same))
		s.set.Log.Warn("images with the same content, all kept", "duplicates", shorten(same))
	}
}

// duplicates describes the groups of pictures that have one content.
func duplicates(pictures []picture) []string {
	at := map[cache.Key][]int{}
	for i, p := range pictures {
		at[p.content] = append(at[p.content], i)
	}
	var out []string
	for i, p := range pictures {
		group := at[p.content]
		if len(group) < 2 || group[0] != i {
			continue
		}
		names, trained, held := make([]string, len(group)), false, false
		for k, j := range group {
			names[k] = shown(pictures[j].rel)
			trained, held = trained || !pictures[j].validation, held || pictures[j].validation
		}
		line := strings.Join(names, " = ")
		if trained && held {
			line += " (in training and in validation)"
		}
		out = append(out, line)
	}
	return out
}

// shorten joins lines, and counts those beyond the first few.
func shorten(lines []string) string {
	more := ""
	if n := len(lines) - mostNamed; n > 0 {
		lines, more = lines[:mostNamed], fmt.Sprintf(", and %d more", n)
	}
	return strings.Join(lines, ", ") + more
}

// nothingUsable says why there is nothing to train on.
func nothingUsable(folder string, held int, faults []fault, others map[string]int) error {
	if held > 0 {
		return fmt.Errorf("all %d usable images of %s are held for validation: lower validation, or add images", held, shown(folder))
	}
	var found []string
	if len(faults) > 0 {
		var each []string
		for _, f := range faults {
			each = append(each, fmt.Sprintf("%s (%v)", shown(f.path), f.err))
		}
		found = append(found, fmt.Sprintf("%d unusable: %s", len(faults), shorten(each)))
	}
	if len(others) > 0 {
		var kinds []string
		for _, ext := range slices.Sorted(maps.Keys(others)) {
			kinds = append(kinds, fmt.Sprintf("%d %s", others[ext], cmp.Or(shown(ext), "without ending")))
		}
		found = append(found, "other files: "+shorten(kinds))
	}
	if len(found) == 0 {
		found = []string{"it is empty"}
	}
	return errors.New("no usable image in " + shown(folder) + ": " + strings.Join(found, "; "))
}
