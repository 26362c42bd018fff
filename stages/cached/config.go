// Package cached is the stage that emits a dataset's samples without its images:
// it reads the list that a run of dataset recorded in a cache. Where latents and
// text embeddings of the list are in the cache too, nothing opens an image or a
// caption again, so the folder may be gone.
//
// All work is in Run, on its goroutine.
package cached

import (
	"errors"

	"longship/pipeline"
)

// Config is what the user writes under `cached:`.
type Config struct {
	Cache pipeline.Path `yaml:"cache" doc:"folder of the cache that holds the list"`
	List  string        `yaml:"list" jsonschema:"required" doc:"name of the list: what dataset's list says, or the run's name, a slash and the dataset's id"`
}

// Default returns the config with every default.
func Default() *Config { return &Config{Cache: "cache"} }

// Validate returns every fault.
func (c *Config) Validate() error {
	var errs []error
	if c.Cache == "" {
		errs = append(errs, &pipeline.FieldError{Path: "cache", Msg: "must name a folder"})
	}
	if c.List == "" {
		errs = append(errs, &pipeline.FieldError{Path: "list", Msg: "must name a list, such as my-style/dataset"})
	}
	return errors.Join(errs...)
}
