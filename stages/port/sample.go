// Package port has the values that the stock stages hand to each other.
// A stage of one's own imports this package and pipeline, nothing internal.
package port

import (
	"strings"

	"longship/cache"
)

// Bucket is an image size in pixels, both sides multiples of 16.
type Bucket struct {
	W int `cbor:"w"`
	H int `cbor:"h"`
}

// Sample is one image at one resolution with its caption. It is a message:
// small, copied freely; tensors are behind cache.Refs.
//
// ID is unique in a run and stable between runs: dataset id, path below the
// folder (slashes), resolution. Path is bytes, since file names need not be UTF-8.
type Sample struct {
	ID      string `cbor:"id"`
	Dataset string `cbor:"dataset"`
	Path    []byte `cbor:"path"` // absolute

	Caption string  `cbor:"caption"` // final: trigger word and defaults applied
	Dropout float64 `cbor:"dropout"` // probability that a step uses the dropped caption
	Dropped string  `cbor:"dropped"` // the caption used then: "" or the trigger word

	Width       int       `cbor:"width"` // of the decoded image, orientation applied
	Height      int       `cbor:"height"`
	Orientation int       `cbor:"orientation"` // EXIF 1..8
	Alpha       string    `cbor:"alpha"`       // drop, white, black
	Content     cache.Key `cbor:"content"`     // BLAKE3 of the file's bytes
	Resolution  int       `cbor:"resolution"`
	Bucket      Bucket    `cbor:"bucket"`

	Repeats    int     `cbor:"repeats"` // at least 1
	Weight     float64 `cbor:"weight"`  // loss multiplier
	Validation bool    `cbor:"validation"`

	References []Reference `cbor:"references"` // reference images, in order

	Latent      cache.Ref `cbor:"latent"`       // f32 [128, H/16, W/16], normalised; set by latents
	Text        cache.Ref `cbor:"text"`         // [L, J]; stored without repeated pad rows, see internal/embedding; set by textembed
	TextDropped cache.Ref `cbor:"text_dropped"` // the same; set by textembed where Dropout > 0
	TextTokens  int       `cbor:"text_tokens"`  // L, padding included

	LatentCache string `cbor:"latent_cache"` // folder of the cache that holds Latent and the references' latents
	TextCache   string `cbor:"text_cache"`   // folder of the cache that holds Text and TextDropped
}

// Reference is a reference image of a sample.
type Reference struct {
	Path        []byte    `cbor:"path"`
	Content     cache.Key `cbor:"content"`
	Width       int       `cbor:"width"`
	Height      int       `cbor:"height"`
	Orientation int       `cbor:"orientation"`
	Size        Bucket    `cbor:"size"`
	Latent      cache.Ref `cbor:"latent"` // f32 [128, h, w]
}

// MessageType makes Sample a message.
func (Sample) MessageType() string { return "sample" }

// ItemName is what messages call the sample: its file.
func (s Sample) ItemName() string { return strings.ToValidUTF8(string(s.Path), "\uFFFD") }

// Step is what train says of one optimiser step. Loss may be NaN.
type Step struct {
	Step     int     `cbor:"step"` // completed steps, from 1
	Loss     float64 `cbor:"loss"`
	LR       float64 `cbor:"lr"`
	GradNorm float64 `cbor:"grad_norm"`
	Seconds  float64 `cbor:"seconds"`
	Skipped  bool    `cbor:"skipped"` // non-finite: no update was made
}

// MessageType makes Step a message.
func (Step) MessageType() string { return "step" }

// Validation is a validation loss: the mean over the validation samples and
// sigmas, and what predicting zero would score on the same.
type Validation struct {
	Step int     `cbor:"step"`
	Loss float64 `cbor:"loss"`
	Zero float64 `cbor:"zero"`
}

// MessageType makes Validation a message.
func (Validation) MessageType() string { return "validation" }
