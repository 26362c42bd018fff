package lorafile

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"longship/internal/flux2"
	"longship/internal/weights"
)

// place is a Linear of FLUX.2, or rows of a fused one, that a file may name.
type place struct {
	module string   // canonical (BFL) name
	parts  []string // its names in the diffusers layout, rows in equal shares
	part   int      // the one meant, -1 the whole module
	swap   bool     // named as diffusers does where the halves of the rows are the other way round
}

// whole says whether all rows of the module are meant.
func (p place) whole() bool { return p.part < 0 }

// name is the shortest unambiguous name: BFL's, diffusers' for a part.
func (p place) name() string {
	if p.whole() {
		return p.module
	}
	return p.parts[p.part]
}

// The block numbers that names hold, dotted or flat.
var (
	doubleNumber = regexp.MustCompile(`(?:double_blocks|(?:^|[._])transformer_blocks)[._](\d+)[._]`)
	singleNumber = regexp.MustCompile(`(?:single_blocks|single_transformer_blocks)[._](\d+)[._]`)
)

// maxBlocks bounds what block numbers in a file make us list.
const maxBlocks = 1024

// blockCounts returns how many blocks of each kind the names speak of.
func blockCounts(names []string) (double, single int, err error) {
	for _, name := range names {
		for kind, count := range map[*regexp.Regexp]*int{doubleNumber: &double, singleNumber: &single} {
			m := kind.FindStringSubmatch(name)
			if m == nil || kind == doubleNumber && strings.Contains(name, "single_transformer_blocks") {
				continue
			}
			n, err := strconv.Atoi(m[1])
			if err != nil || n >= maxBlocks {
				return 0, 0, fmt.Errorf("tensor %q: no FLUX.2 has a block of that number", name)
			}
			*count = max(*count, n+1)
		}
	}
	return double, single, nil
}

// placeTable lists every Linear of a FLUX.2 with so many blocks by all names that
// files give it, and in the model's order.
type placeTable struct {
	byName map[string]place
	order  map[string]int // canonical module -> rank in the model
}

// dotted and flat are what files put before the names.
var (
	dotted = []string{"", "diffusion_model.", "model.diffusion_model.", "transformer.", "base_model.model.", "base_model.model.transformer."}
	flat   = []string{"lora_unet_", "lora_transformer_", "lycoris_"}
)

func newPlaces(double, single int) placeTable {
	cfg := flux2.Default()
	cfg.DoubleBlocks, cfg.SingleBlocks = max(double, 1), max(single, 1)
	t := placeTable{byName: map[string]place{}, order: map[string]int{}}
	for i, w := range (weights.Layout{Diffusers: true}).Targets(cfg) {
		module, ok := strings.CutSuffix(w.Name, ".weight")
		if !ok || len(w.Shape) != 2 {
			continue
		}
		var parts []string
		for _, p := range w.Parts {
			if name := strings.TrimSuffix(p.Tensor, ".weight"); len(parts) == 0 || parts[0] != name {
				parts = append(parts, name)
			}
		}
		swap := len(parts) == 1 && len(w.Parts) == 2
		t.order[module] = i
		t.add(module, place{module: module, parts: parts, part: -1})
		for k, name := range parts {
			p := place{module: module, parts: parts, part: k, swap: swap}
			if len(parts) == 1 {
				p.part = -1
			}
			t.add(name, p)
		}
	}
	return t
}

func (t placeTable) add(name string, p place) {
	for _, prefix := range dotted {
		t.byName[prefix+name] = p
	}
	for _, prefix := range flat {
		t.byName[prefix+strings.ReplaceAll(name, ".", "_")] = p
	}
}
