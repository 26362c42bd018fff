package port

import (
	"context"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/tensor"
)

// Shape is the shape of a batch: what a step's workspace depends on.
type Shape struct {
	B    int      // items
	H, W int      // grid of image tokens: the bucket's sides / 16
	L    int      // text tokens
	Refs [][2]int // grids (h, w) of the reference images, in order
}

// Tokens returns the target image tokens H·W and the reference tokens.
func (s Shape) Tokens() (image, refs int) {
	for _, r := range s.Refs {
		refs += r[0] * r[1]
	}
	return s.H * s.W, refs
}

// Item is one sample in a batch.
type Item struct {
	ID      string
	Weight  float64 // loss multiplier
	Dropped bool    // its caption was dropped for this batch
}

// Batch is one micro-batch on the device. It is a handle: the receiver owns it
// and calls Release once the work that reads it is queued.
type Batch struct {
	Index int // micro-batches of the run before this one; a resumed run continues the count
	Items []Item
	Shape Shape

	Latent tensor.Tensor // f32 [B, H·W, C]: clean latents x₀ as tokens, row-major grid
	Refs   tensor.Tensor // f32 [B, ΣhW, C]: reference latents as tokens; zero Tensor without
	Text   tensor.Tensor // f32 [B, L, J]

	Ready  gpu.Event // reached when the tensors are filled: the compute stream must Wait for it
	Source Source

	Free func(after gpu.Event) // set by the sender; see Release
}

// Release gives the batch's memory back once `after` is reached on the device.
func (b *Batch) Release(after gpu.Event) {
	if b.Free != nil {
		b.Free(after)
		b.Free = nil
	}
}

// Source is what all batches of a run come from. It lives until prefetch is closed.
type Source interface {
	// Device is where the batches and weights are.
	Device() gpu.Device
	// Config is the model's config.json, as flux2.ParseConfig reads it.
	Config() []byte
	// BaseIdentity names the base weights and their quantisation (memory.WeightSet.Source).
	BaseIdentity() string
	// Layout returns the weights as they are shaped and typed, without memory.
	Layout() memory.Source
	// Room returns the bytes of the device that are left beside taken when all
	// weights lie on it, negative where they do not fit; where nothing limits the
	// device's memory limited is false.
	Room(taken int64) (bytes int64, limited bool)
	// Weights loads the weights into what of the device is left beside taken, the
	// bytes that the caller takes of it for the whole run, and binds them to the
	// compute stream that will read them. Called once.
	Weights(ctx context.Context, compute gpu.Stream, taken int64) (memory.Source, error)
	// Shapes lists every shape that a batch of this run, validation included,
	// can have, so that memory is planned before the first step.
	Shapes() []Shape
	// Dataset returns the sorted ids of the training samples, repeats included
	// as "id×n", for naming what changed since the last run.
	Dataset() []string
	// Validation returns the number of validation samples.
	Validation() int
	// LoadValidation stages validation sample i as a batch of one. Not
	// concurrent with itself.
	LoadValidation(ctx context.Context, i int) (*Batch, error)
}
