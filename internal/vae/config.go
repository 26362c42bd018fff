// Package vae is FLUX.2's autoencoder (AutoencoderKLFlux2): pixels to the
// normalised latents that the transformer sees, and back.
//
// Open finds and checks the files; an Encoder or a Decoder holds the weights of
// its half on a device and runs one image at a time, so that a latent does not
// depend on its neighbours. Memory is planned: the workspace of an image size
// is measured by a dry run and taken once. Files may be shared; an Encoder or
// Decoder belongs to one goroutine at a time. Close it before its device.
package vae

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Config is the part of vae/config.json that the arithmetic depends on.
type Config struct {
	InChannels      int     `json:"in_channels"`
	OutChannels     int     `json:"out_channels"`
	LatentChannels  int     `json:"latent_channels"`
	Channels        []int   `json:"block_out_channels"`         // per resolution, finest first
	DecoderChannels []int   `json:"decoder_block_out_channels"` // the same for the decoder; Channels where null
	LayersPerBlock  int     `json:"layers_per_block"`
	Groups          int     `json:"norm_num_groups"`
	BatchNormEps    float64 `json:"batch_norm_eps"`
	SampleSize      int     `json:"sample_size"` // side of a tile in pixels
	PatchSize       []int   `json:"patch_size"`
	QuantConv       bool    `json:"use_quant_conv"`
	PostQuantConv   bool    `json:"use_post_quant_conv"`
	MidAttention    bool    `json:"mid_block_add_attention"`
}

// Patch is the side of the square of latent positions that becomes one token.
const Patch = 2

// GroupNormEps is the epsilon of every GroupNorm; no file says it.
const GroupNormEps = 1e-6

// DefaultConfig returns the configuration of the published FLUX.2 autoencoder.
func DefaultConfig() Config {
	return Config{
		InChannels: 3, OutChannels: 3, LatentChannels: 32,
		Channels: []int{128, 256, 512, 512}, LayersPerBlock: 2, Groups: 32,
		BatchNormEps: 1e-4, SampleSize: 1024, PatchSize: []int{Patch, Patch},
		QuantConv: true, PostQuantConv: true, MidAttention: true,
	}
}

// ParseConfig reads a config.json. A missing key takes its default; unknown
// keys are ignored. All faults are returned at once.
func ParseConfig(b []byte) (Config, error) {
	c := DefaultConfig()
	if err := json.Unmarshal(b, &c); err != nil {
		return Config{}, fmt.Errorf("autoencoder config: %w", err)
	}
	return c, c.validate()
}

// isVAEConfig says whether a config.json found beside a single file is an
// autoencoder's.
func isVAEConfig(text []byte) bool {
	var head struct {
		Class string `json:"_class_name"`
	}
	return json.Unmarshal(text, &head) == nil && strings.HasPrefix(head.Class, "AutoencoderKL")
}

// maxResolutions keeps Scale, which doubles with each of them, a small number.
const maxResolutions = 16

func (c Config) validate() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("autoencoder config: "+format, args...))
	}
	if len(c.Channels) > maxResolutions {
		fault("block_out_channels has %d entries, more than %d", len(c.Channels), maxResolutions)
	}
	if len(c.Channels) == 0 || len(c.decoderChannels()) != len(c.Channels) {
		fault("%d encoder and %d decoder resolutions: block_out_channels and decoder_block_out_channels must have the same length", len(c.Channels), len(c.decoderChannels()))
	}
	positive := func(key string, v int) {
		if v <= 0 {
			fault("%s is %d; it must be positive", key, v)
		}
	}
	positive("in_channels", c.InChannels)
	positive("out_channels", c.OutChannels)
	positive("latent_channels", c.LatentChannels)
	positive("layers_per_block", c.LayersPerBlock)
	positive("norm_num_groups", c.Groups)
	positive("sample_size", c.SampleSize)
	if c.BatchNormEps <= 0 {
		fault("batch_norm_eps is %g; it must be positive", c.BatchNormEps)
	}
	if len(c.PatchSize) != 2 || c.PatchSize[0] != Patch || c.PatchSize[1] != Patch {
		fault("patch_size is %v; only [%d %d] is known", c.PatchSize, Patch, Patch)
	}
	if c.Groups > 0 {
		for _, list := range [][]int{c.Channels, c.decoderChannels()} {
			for _, n := range list {
				if n <= 0 || n%c.Groups != 0 {
					fault("%d channels do not divide into %d groups; norm_num_groups must suit block_out_channels %v", n, c.Groups, list)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// decoderChannels returns the decoder's widths per resolution, finest first.
func (c Config) decoderChannels() []int {
	if len(c.DecoderChannels) > 0 {
		return c.DecoderChannels
	}
	return c.Channels
}

// Scale is how many pixels one latent position stands for, per side (8).
func (c Config) Scale() int { return 1 << (len(c.Channels) - 1) }

// Stride is how many pixels one token stands for, per side (16). The sides of
// an image must be multiples of it.
func (c Config) Stride() int { return Patch * c.Scale() }

// TokenChannels is the width of a token, 128 in FLUX.2.
func (c Config) TokenChannels() int { return c.LatentChannels * Patch * Patch }
