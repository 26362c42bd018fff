// Package flux2 is the FLUX.2 transformer (Black Forest Labs, 2025; the dev and
// klein models): its shape and weights, its forward pass, and its backward pass
// by hand.
//
// The network predicts the velocity v = ε − x₀ of flow matching. Text and image
// tokens first have a stream of their own (double blocks: one attention over
// both, weights apart), then one stream (single blocks: attention and
// feed-forward side by side). Time and guidance enter as shifts, scales and
// gates that all blocks of a kind share.
//
// Names of weights are canonical: those of BFL's single files.
package flux2
