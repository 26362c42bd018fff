// Package quantize is the stage that stores the transformer's frozen weights in
// fewer bytes and hands them on as units. What it makes it keeps in a file in
// the cache's folder, so that the next run only reads and checks it.
//
// All work is in Run, which uses all cores and a few MiB of memory a core. The
// weights that are sent belong to the receiver, who closes them.
package quantize

import (
	"errors"
	"slices"
	"strings"

	"longship/internal/quant"
	"longship/pipeline"
)

// Config is what the user writes under `quantize:`.
type Config struct {
	QType string        `yaml:"qtype" jsonschema:"enum=bf8,enum=float8,enum=int8,enum=bf16,enum=float32" doc:"type of the linear weights inside the blocks"`
	Outer string        `yaml:"outer" jsonschema:"enum=bf8,enum=float8,enum=int8,enum=bf16,enum=float32" doc:"type of the linear weights outside the blocks"`
	Cache pipeline.Path `yaml:"cache" doc:"folder of the cache, which keeps the quantised file"`
}

// Default returns the config with every default.
func Default() *Config { return &Config{QType: "bf8", Outer: "bf16", Cache: "cache"} }

// Validate returns every fault.
func (c *Config) Validate() error {
	var errs []error
	fault := func(key, msg string) { errs = append(errs, &pipeline.FieldError{Path: key, Msg: msg}) }
	for key, qtype := range map[string]string{"qtype": c.QType, "outer": c.Outer} {
		if !slices.Contains(quant.QTypes, qtype) {
			fault(key, "must be one of "+strings.Join(quant.QTypes, ", "))
		}
	}
	if c.Cache == "" {
		fault("cache", "must name a folder")
	}
	return errors.Join(errs...)
}
