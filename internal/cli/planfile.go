package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hashicorp/go-hclog"
	"gopkg.in/yaml.v3"

	"longship/internal/bench"
	"longship/internal/modelpath"
	"longship/internal/weights"
)

// reserved are keys of every stage that say where it stands.
var reserved = []string{"id", "in"}

// ofFile returns what a pipeline file asks for: a case for each resolution of its
// datasets, as a square of that area, and its own settings of prefetch and train.
// Of the model the config is read, or the headers of a single file.
func (a *app) ofFile(file string, o *bench.Options, vram string) ([]bench.Case, error) {
	p, err := a.load(file, runFlags{}, hclog.NewNullLogger())
	if err != nil {
		return nil, err
	}
	defer p.Env.Close()
	path, err := modelpath.Transformer(p.Env.Model)
	if err != nil {
		return nil, err
	}
	o.Arch = bench.Arch{Name: p.Env.Name, TextTokens: 512}
	if o.Arch.Config, err = weights.TransformerConfig(path); err != nil {
		return nil, err
	}
	var doc struct {
		Stages []map[string]map[string]any `yaml:"stages"`
	}
	if err := yaml.Unmarshal(p.Env.Config, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	c := bench.Case{Offload: "auto", Cap: "auto"}
	if p.Env.VRAM != "" {
		c.Cap = p.Env.VRAM
	}
	if vram != "" {
		c.Cap = vram
	}
	var sides []int
	for _, stage := range doc.Stages {
		for kind, keys := range stage {
			maps.DeleteFunc(keys, func(k string, _ any) bool { return slices.Contains(reserved, k) })
			switch kind {
			case "prefetch":
				o.PrefetchKeys = keys
				c.Offload = fmt.Sprint(or(keys["offload"], c.Offload))
				o.Batch, _ = or(keys["batch_size"], 1).(int)
			case "train":
				o.TrainKeys = keys
				network, _ := keys["network"].(map[string]any)
				c.Rank, _ = or(network["rank"], or(network["linear"], 16)).(int)
				o.Optimizer = fmt.Sprint(or(keys["optimizer"], o.Optimizer))
			case "quantize":
				o.QType, o.Outer = fmt.Sprint(or(keys["qtype"], o.QType)), fmt.Sprint(or(keys["outer"], o.Outer))
			case "textembed":
				o.Arch.TextTokens, _ = or(keys["max_length"], o.Arch.TextTokens).(int)
			case "dataset":
				sides = append(sides, resolutions(keys["resolution"])...)
			}
		}
	}
	if o.TrainKeys == nil {
		return nil, fmt.Errorf("%s has no train stage: there is no step to foresee", file)
	}
	slices.Sort(sides)
	var cases []bench.Case
	for _, side := range slices.Compact(sides) {
		c.Pixels = side / 16 * 16
		cases = append(cases, c)
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("%s has no dataset stage, which would say the size of the images: plan --arch takes it from --case", file)
	}
	return cases, nil
}

// resolutions returns the sides that a dataset's key names, 512 where it names none.
func resolutions(v any) []int {
	switch v := v.(type) {
	case int:
		return []int{v}
	case []any:
		var out []int
		for _, e := range v {
			if n, ok := e.(int); ok {
				out = append(out, n)
			}
		}
		return out
	}
	return []int{512}
}

// or returns v, or what stands for it where it is not set.
func or(v, otherwise any) any {
	if v == nil {
		return otherwise
	}
	return v
}
