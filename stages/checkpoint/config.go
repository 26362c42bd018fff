// Package checkpoint is the stage that saves: at the steps it asks for it
// borrows the state from train, writes the adapter file and the state that a
// later run goes on from, and gives it back. While it writes, training waits.
//
// All work is in Run, on its goroutine. It holds nothing beyond Run.
package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"longship/internal/lorafile"
	"longship/pipeline"
)

// Config is what the user writes under `checkpoint:`.
type Config struct {
	Every  int    `yaml:"every" doc:"steps between two checkpoints; 0 saves at the end and when the run is stopped"`
	Keep   int    `yaml:"keep" doc:"numbered adapter files to keep, the newest; 0 keeps all"`
	Layout string `yaml:"layout" jsonschema:"enum=comfyui,enum=diffusers" doc:"names in the adapter file: comfyui (BFL's names, as ai-toolkit writes them) or diffusers"`
	DType  string `yaml:"dtype" jsonschema:"enum=bf16,enum=fp16,enum=fp32,enum=bfloat16,enum=float16,enum=float32" doc:"type of the numbers in the adapter file; the state keeps full precision"`
}

// Default returns the config with every default.
func Default() *Config {
	return &Config{Every: 250, Keep: 4, Layout: lorafile.ComfyUI, DType: "bf16"}
}

// Validate returns every fault.
func (c *Config) Validate() error {
	var errs []error
	fault := func(key, format string, args ...any) {
		errs = append(errs, &pipeline.FieldError{Path: key, Msg: fmt.Sprintf(format, args...)})
	}
	if c.Every < 0 {
		fault("every", "%d is negative", c.Every)
	}
	if c.Keep < 0 {
		fault("keep", "%d is negative", c.Keep)
	}
	if !slices.Contains(lorafile.Layouts, c.Layout) {
		fault("layout", "%q is none of %s", c.Layout, strings.Join(lorafile.Layouts, ", "))
	}
	if _, err := lorafile.ParseDType(c.DType); err != nil {
		fault("dtype", "%v", err)
	}
	return errors.Join(errs...)
}
