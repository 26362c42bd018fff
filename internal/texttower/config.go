package texttower

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Config is the part of a tower's config.json that the arithmetic depends on.
type Config struct {
	Type         string // model_type of the file, "mistral3" or "qwen3"
	Hidden       int    // width of the residual stream
	Layers       int    // of the architecture; a cut file may hold fewer
	Heads        int    // query heads
	KVHeads      int    // key and value heads; each serves Heads/KVHeads query heads
	HeadDim      int
	Intermediate int // width of the feed-forward's hidden layer
	Vocab        int
	Theta        float64 // RoPE base
	Eps          float64 // of every RMSNorm
}

// configFile is what config.json says, whichever version of transformers wrote
// it: the text part stands at the top or in text_config, the RoPE base by
// itself or in rope_parameters.
type configFile struct {
	Type         string      `json:"model_type"`
	Hidden       int         `json:"hidden_size"`
	Layers       int         `json:"num_hidden_layers"`
	Heads        int         `json:"num_attention_heads"`
	KVHeads      int         `json:"num_key_value_heads"`
	HeadDim      int         `json:"head_dim"`
	Intermediate int         `json:"intermediate_size"`
	Vocab        int         `json:"vocab_size"`
	Theta        float64     `json:"rope_theta"`
	Eps          float64     `json:"rms_norm_eps"`
	Act          string      `json:"hidden_act"`
	Window       *int        `json:"sliding_window"`
	Bias         bool        `json:"attention_bias"`
	Rope         *ropeFile   `json:"rope_parameters"`
	Scaling      *ropeFile   `json:"rope_scaling"`
	Text         *configFile `json:"text_config"`
}

type ropeFile struct {
	Type  string  `json:"rope_type"`
	Theta float64 `json:"rope_theta"`
}

// ParseConfig reads a text encoder's config.json. All faults are returned at once.
func ParseConfig(b []byte) (Config, error) {
	var f configFile
	if err := json.Unmarshal(b, &f); err != nil {
		return Config{}, fmt.Errorf("text encoder config: %w", err)
	}
	kind := f.Type
	if f.Text != nil {
		f = *f.Text
	}
	if f.Rope != nil && f.Rope.Theta != 0 {
		f.Theta = f.Rope.Theta
	}
	c := Config{
		Type: kind, Hidden: f.Hidden, Layers: f.Layers, Heads: f.Heads, KVHeads: f.KVHeads, HeadDim: f.HeadDim,
		Intermediate: f.Intermediate, Vocab: f.Vocab, Theta: f.Theta, Eps: f.Eps,
	}
	if c.HeadDim == 0 && c.Heads > 0 {
		c.HeadDim = c.Hidden / c.Heads
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	return c, errors.Join(c.validate(), f.unsupported())
}

func (c Config) validate() error {
	var errs []error
	for _, v := range []struct {
		key string
		n   float64
	}{
		{"hidden_size", float64(c.Hidden)}, {"num_hidden_layers", float64(c.Layers)}, {"num_attention_heads", float64(c.Heads)},
		{"num_key_value_heads", float64(c.KVHeads)}, {"head_dim", float64(c.HeadDim)}, {"intermediate_size", float64(c.Intermediate)},
		{"vocab_size", float64(c.Vocab)}, {"rope_theta", c.Theta}, {"rms_norm_eps", c.Eps},
	} {
		if v.n <= 0 {
			errs = append(errs, fmt.Errorf("text encoder config: %s is missing or not positive", v.key))
		}
	}
	if c.KVHeads > 0 && c.Heads%c.KVHeads != 0 {
		errs = append(errs, fmt.Errorf("text encoder config: %d attention heads are not a multiple of %d key-value heads", c.Heads, c.KVHeads))
	}
	if c.HeadDim%2 != 0 {
		errs = append(errs, fmt.Errorf("text encoder config: head_dim %d is odd; RoPE turns pairs", c.HeadDim))
	}
	return errors.Join(errs...)
}

// unsupported names what would change the arithmetic in a way that this
// package does not follow.
func (f configFile) unsupported() error {
	var errs []error
	fault := func(key string, value any) {
		errs = append(errs, fmt.Errorf("text encoder config: %s is %v, which is not supported", key, value))
	}
	if f.Act != "" && f.Act != "silu" {
		fault("hidden_act", f.Act)
	}
	if f.Window != nil && *f.Window > 0 {
		fault("sliding_window", *f.Window)
	}
	if f.Bias {
		fault("attention_bias", f.Bias)
	}
	for _, r := range []*ropeFile{f.Rope, f.Scaling} {
		if r != nil && r.Type != "" && r.Type != "default" {
			fault("rope_type", r.Type)
		}
	}
	return errors.Join(errs...)
}

// DefaultLayers returns the hidden states that make an embedding: those after a
// quarter, a half and three quarters of the architecture's layers (10, 20, 30
// of Mistral Small's 40; 9, 18, 27 of Qwen3's 36).
func (c Config) DefaultLayers() []int {
	return []int{c.Layers / 4, c.Layers / 2, 3 * c.Layers / 4}
}
