package dataset

import (
	"cmp"
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
func (s *stage) report(found *finding, samples []port.Sample) {
	held := found.held()
	used := len(found.pictures) - held
	s.set.Summarise("images found", found.images)
	s.set.Summarise("images used", used)
	if held > 0 {
		s.set.Summarise("images for validation", held)
	}
	if n := len(found.aside); n > 0 {
		s.set.Summarise("set aside", n)
	}
	if n := found.uncaptioned(); n > 0 {
		s.set.Summarise("images without a caption", n)
	}
	buckets := bucketLines(samples)
	s.set.Summarise("buckets", buckets)
	s.set.Log.Info("images read", "used", used, "validation", held, "buckets", buckets)
	if same := duplicates(found.pictures); len(same) > 0 {
		s.set.Summarise("duplicates", shorten(same))
		s.set.Log.Warn("images with the same content, all kept", "duplicates", shorten(same))
	}
}

func (f *finding) held() (n int) {
	for _, p := range f.pictures {
		if p.validation {
			n++
		}
	}
	return n
}

// uncaptioned counts the pictures whose caption is empty, defaults applied.
func (f *finding) uncaptioned() (n int) {
	for _, p := range f.pictures {
		if p.text == "" {
			n++
		}
	}
	return n
}

// bucketLines counts samples by bucket, smallest bucket first.
func bucketLines(samples []port.Sample) string {
	count := map[port.Bucket]int{}
	for _, sample := range samples {
		count[sample.Bucket]++
	}
	sizes := slices.SortedFunc(maps.Keys(count), func(a, b port.Bucket) int {
		return cmp.Or(cmp.Compare(a.W*a.H, b.W*b.H), cmp.Compare(a.W, b.W))
	})
	lines := make([]string, len(sizes))
	for i, b := range sizes {
		lines[i] = fmt.Sprintf("%dx%d: %d", b.W, b.H, count[b])
	}
	return shorten(lines)
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

// usable returns an error that says what a folder holds when none of it can be
// trained on.
func (f *finding) usable(folder string) error {
	if held := f.held(); held < len(f.pictures) {
		return nil
	} else if held > 0 && f.asked > 0 {
		return fmt.Errorf("no image of %s is left to train on: all %d are held for validation; lower validation or add images", shown(folder), held)
	}
	var holds []string
	if len(f.aside) > 0 {
		var each []string
		for _, a := range f.aside {
			each = append(each, fmt.Sprintf("%s (%v)", shown(a.path), a.err))
		}
		holds = append(holds, fmt.Sprintf("%d unusable: %s", len(f.aside), shorten(each)))
	}
	if len(f.others) > 0 {
		var kinds []string
		for _, ext := range slices.Sorted(maps.Keys(f.others)) {
			kinds = append(kinds, fmt.Sprintf("%d %s", f.others[ext], cmp.Or(shown(ext), "without an ending")))
		}
		holds = append(holds, "other files: "+shorten(kinds))
	}
	if len(holds) == 0 {
		holds = []string{"it holds no files"}
	}
	return fmt.Errorf("no usable image in %s: %s", shown(folder), strings.Join(holds, "; "))
}
