package flux2

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// Config is the shape of a transformer, as its config.json gives it.
type Config struct {
	InChannels   int     // channels of an image token, C
	OutChannels  int     // channels of a predicted token
	DoubleBlocks int     // blocks with a stream each for text and image
	SingleBlocks int     // blocks with one stream
	HeadDim      int     // width of a head
	Heads        int     // heads; the model's width D is Heads·HeadDim
	TextDim      int     // width of a text token, J
	TimeChannels int     // width of the sinusoid of time and guidance
	MLPRatio     float64 // inner width of the feed-forward over D
	Axes         []int   // RoPE dimensions of the four axes (T, H, W, L); they sum to HeadDim
	Theta        float64 // RoPE base
	Eps          float64 // of every norm
	Guidance     bool    // the model has a guidance embedder (dev has, klein has not)
}

const className = "Flux2Transformer2DModel"

// Default returns the values that a config.json without the key stands for.
func Default() Config {
	return Config{
		InChannels: 128, OutChannels: 128, DoubleBlocks: 8, SingleBlocks: 48, HeadDim: 128, Heads: 48,
		TextDim: 15360, TimeChannels: 256, MLPRatio: 3, Axes: []int{32, 32, 32, 32}, Theta: 2000, Eps: 1e-6, Guidance: true,
	}
}

// configFile is config.json. A missing or null key takes the default.
type configFile struct {
	Class        *string  `json:"_class_name,omitempty"`
	PatchSize    *int     `json:"patch_size,omitempty"`
	InChannels   *int     `json:"in_channels,omitempty"`
	OutChannels  *int     `json:"out_channels"`
	DoubleBlocks *int     `json:"num_layers,omitempty"`
	SingleBlocks *int     `json:"num_single_layers,omitempty"`
	HeadDim      *int     `json:"attention_head_dim,omitempty"`
	Heads        *int     `json:"num_attention_heads,omitempty"`
	TextDim      *int     `json:"joint_attention_dim,omitempty"`
	TimeChannels *int     `json:"timestep_guidance_channels,omitempty"`
	MLPRatio     *float64 `json:"mlp_ratio,omitempty"`
	Axes         []int    `json:"axes_dims_rope,omitempty"`
	Theta        *float64 `json:"rope_theta,omitempty"`
	Eps          *float64 `json:"eps,omitempty"`
	Guidance     *bool    `json:"guidance_embeds,omitempty"`
}

// ParseConfig reads a transformer's config.json and checks it. Unknown keys are
// ignored; every fault found is in the error, by key.
func ParseConfig(data []byte) (Config, error) {
	var f configFile
	if err := json.Unmarshal(data, &f); err != nil {
		return Config{}, fmt.Errorf("transformer config: %w", err)
	}
	if f.Class != nil && *f.Class != className {
		return Config{}, fmt.Errorf("transformer config: _class_name is %q, not %q: this is not a FLUX.2 transformer", *f.Class, className)
	}
	if f.PatchSize != nil && *f.PatchSize != 1 {
		return Config{}, fmt.Errorf("transformer config: patch_size is %d; only 1 exists in FLUX.2", *f.PatchSize)
	}
	c := Default()
	take(&c.InChannels, f.InChannels)
	c.OutChannels = c.InChannels
	take(&c.OutChannels, f.OutChannels)
	take(&c.DoubleBlocks, f.DoubleBlocks)
	take(&c.SingleBlocks, f.SingleBlocks)
	take(&c.HeadDim, f.HeadDim)
	take(&c.Heads, f.Heads)
	take(&c.TextDim, f.TextDim)
	take(&c.TimeChannels, f.TimeChannels)
	take(&c.MLPRatio, f.MLPRatio)
	take(&c.Theta, f.Theta)
	take(&c.Eps, f.Eps)
	take(&c.Guidance, f.Guidance)
	if f.Axes != nil {
		c.Axes = f.Axes
	}
	if err := c.check(); err != nil {
		return Config{}, fmt.Errorf("transformer config: %w", err)
	}
	return c, nil
}

func take[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// JSON returns the config as a config.json that ParseConfig reads.
func (c Config) JSON() []byte {
	class, patch := className, 1
	data, err := json.MarshalIndent(configFile{
		Class: &class, PatchSize: &patch, InChannels: &c.InChannels, OutChannels: &c.OutChannels,
		DoubleBlocks: &c.DoubleBlocks, SingleBlocks: &c.SingleBlocks, HeadDim: &c.HeadDim, Heads: &c.Heads,
		TextDim: &c.TextDim, TimeChannels: &c.TimeChannels, MLPRatio: &c.MLPRatio, Axes: c.Axes,
		Theta: &c.Theta, Eps: &c.Eps, Guidance: &c.Guidance,
	}, "", "  ")
	if err != nil {
		panic(err) // numbers, checked to be finite, and booleans
	}
	return append(data, '\n')
}

// Bounds on sizes, so that products of two stay far from overflow.
const (
	maxDim    = 1 << 20
	maxBlocks = 1 << 12
)

func (c Config) check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, d := range []struct {
		key    string
		v, top int
	}{
		{"in_channels", c.InChannels, maxDim}, {"out_channels", c.OutChannels, maxDim},
		{"num_layers", c.DoubleBlocks, maxBlocks}, {"num_single_layers", c.SingleBlocks, maxBlocks},
		{"attention_head_dim", c.HeadDim, maxDim}, {"num_attention_heads", c.Heads, maxDim},
		{"joint_attention_dim", c.TextDim, maxDim}, {"timestep_guidance_channels", c.TimeChannels, maxDim},
	} {
		if d.v < 1 || d.v > d.top {
			fault("%s is %d, not between 1 and %d", d.key, d.v, d.top)
		}
	}
	if c.TimeChannels%2 != 0 {
		fault("timestep_guidance_channels is %d; it must be even", c.TimeChannels)
	}
	if len(c.Axes) != axes {
		fault("axes_dims_rope has %d entries, not %d", len(c.Axes), axes)
	}
	sum := 0
	for _, d := range c.Axes {
		if d < 2 || d%2 != 0 || d > maxDim {
			fault("axes_dims_rope has %d; every axis needs an even number of dimensions", d)
		}
		sum += d
	}
	if sum != c.HeadDim {
		fault("axes_dims_rope %v adds up to %d, but attention_head_dim is %d", c.Axes, sum, c.HeadDim)
	}
	if !(c.Theta > 1) || math.IsInf(c.Theta, 0) {
		fault("rope_theta is %v, not above 1", c.Theta)
	}
	if !(c.Eps > 0 && c.Eps < 1) {
		fault("eps is %v, not between 0 and 1", c.Eps)
	}
	if width := c.MLPRatio * float64(c.Width()); !(width >= 1 && width <= maxDim) || width != math.Trunc(width) {
		fault("mlp_ratio %v of width %d is %v; it must be a whole number", c.MLPRatio, c.Width(), width)
	}
	return errors.Join(faults...)
}

// Width returns D, the width of the residual streams.
func (c Config) Width() int { return c.Heads * c.HeadDim }

// Inner returns the inner width of the feed-forward, 3·D in every known model.
func (c Config) Inner() int { return int(c.MLPRatio * float64(c.Width())) }

// Blocks returns the number of blocks, double ones first.
func (c Config) Blocks() int { return c.DoubleBlocks + c.SingleBlocks }

// Arch names the model family by its size, as adapter files do: flux2,
// flux2_klein_4b or flux2_klein_9b. A model of no known size counts as dev
// where it has a guidance embedder and as klein 4B where it has none.
func (c Config) Arch() string {
	switch {
	case c.Guidance:
		return "flux2"
	case c.Width() >= 4096:
		return "flux2_klein_9b"
	default:
		return "flux2_klein_4b"
	}
}
