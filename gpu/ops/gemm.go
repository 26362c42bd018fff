package ops

import (
	"longship/gpu"
	"longship/gpu/blas"
	"longship/gpu/tensor"
)

// Gemm is C = Alpha·op(A)·op(B) + Beta·C, op(X) = Xᵀ where Trans is set.
//
//	C [M,N], op(A) [M,K], op(B) [K,N]; all dimensions but the last are rows,
//	and rows may lie apart (column ranges work on all three sides).
//
// A Linear y = x·Wᵀ with W [out,in] is {C: y, A: x, B: W, TransB: true}; its
// gradients are dx = dy·W {C: dx, A: dy, B: W} and dW += dyᵀ·x
// {C: dW, A: dy, TransA: true, B: x, Beta: 1}. With Beta 0, C is assigned.
// Alpha has no default: 0 gives 0.
type Gemm struct {
	C, A, B        tensor.Tensor
	TransA, TransB bool
	Alpha, Beta    float32
}

// Name is "gemm".
func (Gemm) Name() string { return "gemm" }

func (k Gemm) dims() (m, n, depth int) {
	m, depth = k.A.Rows(), k.A.Cols()
	if k.TransA {
		m, depth = depth, m
	}
	n = k.B.Cols()
	if k.TransB {
		n = k.B.Rows()
	}
	return m, n, depth
}

// Check demands shapes that fit.
func (k Gemm) Check() error {
	var c check
	m, n, depth := k.dims()
	c.matrix("a", k.A, k.A.Rows(), k.A.Cols())
	if k.TransB {
		c.matrix("b (transposed)", k.B, n, depth)
	} else {
		c.matrix("b", k.B, depth, n)
	}
	c.matrix("c", k.C, m, n)
	return c.err
}

// Cost is 2·M·N·K.
func (k Gemm) Cost() gpu.Cost {
	m, n, depth := k.dims()
	return gpu.Cost{FLOPs: 2 * int64(m) * int64(n) * int64(depth), Bytes: k.A.Bytes() + k.B.Bytes() + k.C.Bytes()}
}

// Host computes it with package blas.
func (k Gemm) Host(w gpu.Workers) error {
	a, b := open(k.A).matrix(), open(k.B).matrix()
	a.Trans, b.Trans = k.TransA, k.TransB
	blas.Gemm(w, k.Alpha, a, b, k.Beta, open(k.C).matrix())
	return nil
}
