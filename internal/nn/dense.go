package nn

import (
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// Dense is a Linear with a frozen weight, as it is stored: plain or quantised.
// The weight is set before every use, since it may lie elsewhere each time.
type Dense struct {
	Weight tensor.Weight // [out, in]
}

// Forward queues y = x·Wᵀ.
func (d *Dense) Forward(c *ops.Ctx, y, x tensor.Tensor) {
	if !y.Valid() {
		return
	}
	defer c.Scope()()
	c.Run(ops.Gemm{C: y, A: x, B: Operand(c, d.Weight), TransB: true, Alpha: 1})
}

// Backward queues dx = dy·W; a frozen weight has no gradient.
func (d *Dense) Backward(c *ops.Ctx, dx, dy, _ tensor.Tensor, add bool) {
	if !dx.Valid() {
		return
	}
	defer c.Scope()()
	var beta float32
	if add {
		beta = 1
	}
	c.Run(ops.Gemm{C: dx, A: dy, B: Operand(c, d.Weight), Alpha: 1, Beta: beta})
}

// Operand returns w in the activations' type, as a Gemm reads it: itself where
// it is stored so, else expanded into the arena.
func Operand(c *ops.Ctx, w tensor.Weight) tensor.Tensor {
	if w.Data.DType == c.Act && !w.Scale.Valid() {
		return w.Data
	}
	y := c.New(w.Data.Shape...)
	c.Run(ops.Expand{Y: y, W: w})
	return y
}
