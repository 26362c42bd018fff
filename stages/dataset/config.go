// Package dataset is the stage that finds images and captions: it walks a
// folder, reads sizes from headers, joins captions, assigns buckets, and emits
// one Sample an image and resolution. It decodes nothing.
//
// The stage reads files on a few goroutines inside Run and sends from Run's own,
// in the order of the paths, so that what follows does not depend on how fast a
// disk answers. What cannot be used is set aside with its reason and the run
// goes on.
package dataset

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"longship/internal/imageio"
	"longship/pipeline"
)

// Config is what the user writes under `dataset:`. Keys that ai-toolkit has keep
// its names and meanings.
type Config struct {
	Folder         pipeline.Path   `yaml:"folder" jsonschema:"required" doc:"folder of images, searched with all folders in it"`
	Resolution     []int           `yaml:"resolution" doc:"images are brought to the area of this many pixels squared; a list gives a sample for each"`
	CaptionExt     string          `yaml:"caption_ext" doc:"ending of the caption file beside an image: txt, caption, json, …"`
	DefaultCaption string          `yaml:"default_caption" doc:"caption of an image whose caption file is missing or blank"`
	TriggerWord    string          `yaml:"trigger_word" doc:"replaces [trigger] and [name] in captions, and is put before those that lack it"`
	CaptionDropout float64         `yaml:"caption_dropout_rate" doc:"probability that a step sees no caption, or the trigger word alone"`
	NumRepeats     int             `yaml:"num_repeats" doc:"how often an epoch shows each image"`
	LossMultiplier float64         `yaml:"loss_multiplier" doc:"weight of these images in the loss"`
	Alpha          string          `yaml:"alpha" jsonschema:"enum=drop,enum=white,enum=black" doc:"what becomes of transparency: drop keeps the colours under it, white and black lay the image over that colour"`
	ControlPath    []pipeline.Path `yaml:"control_path" doc:"folders of reference images, each with a file of an image's name for every image"`
	Validation     string          `yaml:"validation" jsonschema:"oneof_type=string;integer" doc:"how many images, or the folder of images, to measure the loss on and never to train on"`
	Cache          pipeline.Path   `yaml:"cache" doc:"folder of the cache, which remembers files and the list of samples"`
	List           string          `yaml:"list" doc:"name that the list of samples is recorded under, for the stage cached; empty: the run's name, a slash and the stage's id"`
}

// Default returns the config with every default.
func Default() *Config {
	return &Config{
		Resolution: []int{512}, CaptionExt: ".txt", NumRepeats: 1, LossMultiplier: 1,
		Alpha: string(imageio.AlphaDrop), Cache: "cache",
	}
}

const (
	maxResolution = 8192    // 64 Mi pixels
	maxRepeats    = 100_000 // an epoch is kept as a list
)

// Validate returns every fault.
func (c *Config) Validate() error {
	var errs []error
	fault := func(bad bool, key, format string, args ...any) {
		if bad {
			errs = append(errs, &pipeline.FieldError{Path: key, Msg: fmt.Sprintf(format, args...)})
		}
	}
	fault(c.Folder == "", "folder", "must name a folder of images")
	fault(len(c.Resolution) == 0, "resolution", "must hold at least one number")
	seen := map[int]bool{}
	for _, r := range c.Resolution {
		fault(r < grid || r > maxResolution, "resolution", "%d is not between %d and %d", r, grid, maxResolution)
		fault(seen[r], "resolution", "%d stands twice; use num_repeats to show images more often", r)
		seen[r] = true
	}
	fault(strings.Trim(c.CaptionExt, ".") == "" || strings.ContainsAny(c.CaptionExt, `/\`), "caption_ext", "%q is not a file ending such as txt", c.CaptionExt)
	fault(!(c.CaptionDropout >= 0 && c.CaptionDropout <= 1), "caption_dropout_rate", "%v is not a probability from 0 to 1", c.CaptionDropout)
	fault(c.NumRepeats < 1 || c.NumRepeats > maxRepeats, "num_repeats", "%d is not between 1 and %d", c.NumRepeats, maxRepeats)
	fault(!(c.LossMultiplier >= 0) || math.IsInf(c.LossMultiplier, 0), "loss_multiplier", "%v is not a weight of 0 or more", c.LossMultiplier)
	_, err := imageio.ParseAlpha(c.Alpha)
	fault(err != nil, "alpha", "%v", err)
	for i, p := range c.ControlPath {
		fault(p == "", fmt.Sprintf("control_path[%d]", i), "must name a folder")
	}
	n, isCount := c.validationCount()
	fault(isCount && n < 0, "validation", "%d images are too few", n)
	fault(c.Cache == "", "cache", "must name a folder")
	return errors.Join(errs...)
}

// validationCount returns how many images validation asks for; false where it
// names a folder. Nothing is a count of 0.
func (c *Config) validationCount() (n int, ok bool) {
	if c.Validation == "" {
		return 0, true
	}
	n, err := strconv.Atoi(c.Validation)
	return n, err == nil
}

// captionExt returns the ending of caption files with its dot.
func (c *Config) captionExt() string { return "." + strings.TrimPrefix(c.CaptionExt, ".") }
