package textembed

import (
	"errors"
	"slices"
	"strings"

	"longship/internal/quant"
	"longship/pipeline"
)

// Config is what the user writes under `textembed:`.
type Config struct {
	Cache     pipeline.Path `yaml:"cache" doc:"folder of the cache"`
	QType     string        `yaml:"qtype" doc:"type that the text tower's linear weights are held in: bf8, float8, int8, bf16, float32, or none for that of the file"`
	Offload   float64       `yaml:"offload" doc:"share of the tower kept in host memory and streamed to the device, 0 to 1"`
	Layers    []int         `yaml:"layers" doc:"hidden states that make an embedding; empty: after a quarter, a half and three quarters of the tower"`
	MaxLength int           `yaml:"max_length" doc:"tokens of an embedding; longer prompts are cut, shorter ones padded"`
	Precision string        `yaml:"precision" doc:"type that embeddings are stored in: bf16 or f32"`
	Batch     int           `yaml:"batch" doc:"prompts that go through a layer before the next is fetched; no result depends on it"`
}

// Default returns the defaults.
func Default() *Config {
	return &Config{Cache: "cache", QType: "bf8", MaxLength: 512, Precision: "bf16", Batch: 4}
}

// qtypes are those of quantised weights and none.
var qtypes = append(slices.Clone(quant.QTypes), "none")

// Validate reports every fault.
func (c *Config) Validate() error {
	var errs []error
	fault := func(bad bool, key, msg string) {
		if bad {
			errs = append(errs, &pipeline.FieldError{Path: key, Msg: msg})
		}
	}
	fault(c.Cache == "", "cache", "must name a folder")
	fault(!slices.Contains(qtypes, c.QType), "qtype", "must be one of "+strings.Join(qtypes, ", "))
	fault(!(c.Offload >= 0 && c.Offload <= 1), "offload", "must be a share between 0 and 1")
	fault(slices.ContainsFunc(c.Layers, func(n int) bool { return n < 0 }), "layers", "must not be negative")
	fault(c.MaxLength < 1, "max_length", "must be at least 1")
	fault(c.Precision != "bf16" && c.Precision != "f32", "precision", "must be bf16 or f32")
	fault(c.Batch < 1, "batch", "must be at least 1")
	return errors.Join(errs...)
}
