package adapter

import (
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/nn"
)

// LoRA adds a low-rank pair to rows [Lo, Hi) of a Linear:
//
//	y = base(x);  y[:, Lo:Hi] += s·h·Bᵀ,  h = x·Aᵀ
//
// and backward, with dy restricted to [Lo, Hi):
//
//	dB += s·dyᵀ·h    dh = s·dy·B    dA += dhᵀ·x    dx += dh·A
//
// h is kept in the arena from Forward to Backward. Several of them may be put
// on each other.
type LoRA struct {
	Base   nn.Linear
	A, B   Param // A [r, in], B [Hi-Lo, r]
	Lo, Hi int
	Scale  float32

	h tensor.Tensor // [rows of x, r]
}

// Forward queues the base and the pair.
func (l *LoRA) Forward(c *ops.Ctx, y, x tensor.Tensor) {
	l.h = c.New(x.Rows(), l.A.Value.Rows())
	l.Base.Forward(c, y, x)
	defer c.Scope()()
	c.Run(ops.Gemm{C: l.h, A: x, B: operand(c, l.A), TransB: true, Alpha: 1})
	if y.Valid() {
		c.Run(ops.Gemm{C: y.ColRange(l.Lo, l.Hi), A: l.h, B: operand(c, l.B), TransB: true, Alpha: l.Scale, Beta: 1})
	}
}

// Backward queues the base's backward and the pair's.
func (l *LoRA) Backward(c *ops.Ctx, dx, dy, x tensor.Tensor, add bool) {
	l.Base.Backward(c, dx, dy, x, add)
	defer c.Scope()()
	part := dy.ColRange(l.Lo, l.Hi)
	dh := c.New(l.h.Shape...)
	accumulate(c, l.B.Grad, ops.Gemm{A: part, TransA: true, B: l.h, Alpha: l.Scale})
	c.Run(ops.Gemm{C: dh, A: part, B: operand(c, l.B), Alpha: l.Scale})
	accumulate(c, l.A.Grad, ops.Gemm{A: dh, TransA: true, B: x, Alpha: 1})
	if dx.Valid() {
		c.Run(ops.Gemm{C: dx, A: dh, B: operand(c, l.A), Alpha: 1, Beta: 1})
	}
}

// accumulate queues that a product is added to a gradient: in float32, and
// rounded once where the gradient is bfloat16.
func accumulate(c *ops.Ctx, grad tensor.Tensor, product ops.Gemm) {
	product.Beta = 1
	if grad.DType == tensor.F32 || c.Act == tensor.BF16 {
		product.C = grad
		c.Run(product)
		return
	}
	// A product of float32 matrices is float32.
	defer c.Scope()()
	product.C = c.NewF32(grad.Shape...)
	c.Run(ops.Cast{Y: product.C, X: grad}, product, ops.Cast{Y: grad, X: product.C})
}

// operand returns a parameter in the activations' type.
func operand(c *ops.Ctx, p Param) tensor.Tensor {
	return nn.Operand(c, tensor.Weight{Data: p.Value})
}

var _ nn.Linear = (*LoRA)(nil)
