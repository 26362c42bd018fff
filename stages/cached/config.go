// Package cached is the stage that emits samples without their images: it reads
// the list that a run of dataset, latents or textembed recorded in a cache. Where
// the latents and text embeddings are in the cache too, nothing opens an image or
// a caption again, so the folder may be gone; and where the list is that of
// textembed, neither the autoencoder nor the text tower is needed.
//
// All work is in Run, on its goroutine.
package cached

import (
	"errors"
	"fmt"

	"longship/pipeline"
	"longship/stages/port"
)

// Config is what the user writes under `cached:`.
type Config struct {
	Cache   pipeline.Path `yaml:"cache" doc:"folder of the cache that holds the list"`
	List    string        `yaml:"list" jsonschema:"required" doc:"name of the list: what dataset's list says, or the run's name, a slash and the id of its dataset, latents or textembed stage"`
	Carries []string      `yaml:"carries,flow" doc:"what the samples of the list carry already: latent, text; those of a textembed behind latents carry both"`
}

// Default returns the config with every default.
func Default() *Config { return &Config{Cache: "cache", Carries: []string{}} }

// carried are the words of Carries, each with the test of a sample that it is about.
var carried = map[string]func(port.Sample) bool{
	"latent": func(s port.Sample) bool { return !s.Latent.IsZero() },
	"text":   func(s port.Sample) bool { return !s.Text.IsZero() },
}

// Validate returns every fault.
func (c *Config) Validate() error {
	var errs []error
	if c.Cache == "" {
		errs = append(errs, &pipeline.FieldError{Path: "cache", Msg: "must name a folder"})
	}
	if c.List == "" {
		errs = append(errs, &pipeline.FieldError{Path: "list", Msg: "must name a list, such as my-style/dataset"})
	}
	for _, c := range c.Carries {
		if carried[c] == nil {
			errs = append(errs, &pipeline.FieldError{Path: "carries", Msg: fmt.Sprintf("%q is neither latent nor text", c)})
		}
	}
	return errors.Join(errs...)
}
