package nn

import (
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// Linear is a map of rows, y = x·Wᵀ, without bias.
//
// A Linear is used for one forward pass and at most one backward pass after it
// at a time. What Forward keeps for Backward it takes from the arena and does
// not release; it must still be there when Backward runs.
type Linear interface {
	// Forward queues y = x·Wᵀ. x is [..., in], y [..., out]. With the zero Tensor
	// as y the output is not computed, only what Backward needs (a recompute does
	// not want the last outputs of a block).
	Forward(c *ops.Ctx, y, x tensor.Tensor)
	// Backward queues dx = dy·W, or dx += dy·W where add is set, and adds to the
	// gradients of the Linear's own trained parameters. x is what Forward was
	// given. With the zero Tensor as dx the input's gradient is not computed.
	Backward(c *ops.Ctx, dx, dy, x tensor.Tensor, add bool)
}
