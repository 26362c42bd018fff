package latents

import (
	"errors"

	"longship/internal/imageio"
	"longship/internal/vae"
	"longship/pipeline"
)

// Config is what the user writes under `latents:`.
type Config struct {
	Cache     pipeline.Path `yaml:"cache" doc:"folder of the cache"`
	Tile      int           `yaml:"tile" doc:"encode images larger than this many pixels a side in overlapping tiles; 0 encodes them whole"`
	Resize    string        `yaml:"resize" doc:"filter that brings images to their size: bicubic, bilinear or lanczos"`
	Precision string        `yaml:"precision" doc:"type that latents are stored in: f32 or bf16"`
	Workers   int           `yaml:"workers" doc:"images decoded at once; 0 takes the number of cores"`
}

// Default returns the defaults.
func Default() *Config {
	return &Config{Cache: "cache", Resize: "bicubic", Precision: "f32"}
}

var filters = map[string]imageio.Filter{"bicubic": imageio.Bicubic, "bilinear": imageio.Bilinear, "lanczos": imageio.Lanczos}

// options returns the config as the options of Encode.
func (c *Config) options() Options {
	return Options{Tile: c.Tile, Resize: c.Resize, Precision: c.Precision, Workers: c.Workers}
}

// Validate reports every fault.
func (c *Config) Validate() error {
	var errs []error
	fault := func(key, msg string) { errs = append(errs, &pipeline.FieldError{Path: key, Msg: msg}) }
	if c.Cache == "" {
		fault("cache", "must name a folder")
	}
	if c.Tile < 0 || c.Tile%vae.TileStep != 0 {
		fault("tile", "must be 0 or a multiple of 32 pixels")
	}
	if _, ok := filters[c.Resize]; !ok {
		fault("resize", "must be bicubic, bilinear or lanczos")
	}
	if c.Precision != "f32" && c.Precision != "bf16" {
		fault("precision", "must be f32 or bf16")
	}
	if c.Workers < 0 {
		fault("workers", "must not be negative")
	}
	return errors.Join(errs...)
}
