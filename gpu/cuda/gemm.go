//go:build cuda

package cuda

import (
	"fmt"
	"math/bits"
	"unsafe"

	"longship/gpu"
	"longship/gpu/cuda/cublaslt"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// gemmShape is what cublasLt's choice of an algorithm may depend on. Every call
// of one shape has the same algorithm for the life of the device, and so the
// same bits.
type gemmShape struct {
	m, n, k        int
	a, b, c        operand
	transA, transB bool
	adds           bool // Beta is not 0
}

// operand is a matrix of a gemm: its type, the elements from row to row, and
// the alignment of its first element in bytes, at most 256.
type operand struct {
	dtype  tensor.DType
	stride int
	align  int
}

// matmul is one call of cublasLt.
type matmul struct {
	shape       gemmShape
	a, b, c     uintptr
	alpha, beta float32
	space       workspace
}

func launchGemm(s *stream, k gpu.Kernel) error { return s.gemm(k.(ops.Gemm)) }

// gemm queues C = Alpha·op(A)·op(B) + Beta·C with float32 accumulation. A and B
// are both bf16 or both f32, C is bf16 or f32.
func (s *stream) gemm(g ops.Gemm) error {
	if _, ok := cublasTypes[g.A.DType]; !ok || g.A.DType != g.B.DType {
		return fmt.Errorf("a is %s and b is %s, want both bf16 or both f32", g.A.DType, g.B.DType)
	}
	if _, ok := cublasTypes[g.C.DType]; !ok || g.A.DType == tensor.F32 && g.C.DType != tensor.F32 {
		return fmt.Errorf("c is %s for %s inputs", g.C.DType, g.A.DType)
	}
	if g.C.Len() == 0 {
		return nil
	}
	space, err := s.space()
	if err != nil {
		return err
	}
	c := &matmul{a: uintptr(s.ptr(g.A)), b: uintptr(s.ptr(g.B)), c: uintptr(s.ptr(g.C)), alpha: g.Alpha, beta: g.Beta, space: space}
	c.shape = gemmShape{
		m: g.C.Rows(), n: g.C.Cols(), k: g.A.Cols(),
		a: operandOf(g.A, c.a), b: operandOf(g.B, c.b), c: operandOf(g.C, c.c),
		transA: g.TransA, transB: g.TransB, adds: g.Beta != 0,
	}
	if g.TransA {
		c.shape.k = g.A.Rows()
	}
	s.launches.Add(1)
	s.push(c)
	return nil
}

func operandOf(t tensor.Tensor, at uintptr) operand {
	return operand{dtype: t.DType, stride: int(stride(t)), align: 1 << min(bits.TrailingZeros64(uint64(at)), 8)}
}

var cublasTypes = map[tensor.DType]cublaslt.Type{tensor.F32: cublaslt.F32, tensor.BF16: cublaslt.BF16}

func (c *matmul) issue(s *stream) {
	if s.failed() != nil {
		return
	}
	if err := c.call(s); err != nil {
		s.Fail(fmt.Errorf("gemm %d x %d x %d (a %s stride %d, b %s stride %d, c %s stride %d): %w",
			c.shape.m, c.shape.n, c.shape.k, c.shape.a.dtype, c.shape.a.stride, c.shape.b.dtype, c.shape.b.stride, c.shape.c.dtype, c.shape.c.stride, err))
		return
	}
	s.dev.ran(s, "gemm")
}

func (c *matmul) call(s *stream) error {
	plan, err := s.dev.plan(c.shape)
	if err != nil {
		return err
	}
	// cublasLt's matrices are columns first, so it is given the transposed
	// product: Cᵀ = op(B)ᵀ·op(A)ᵀ.
	return plan.Run(c.alpha, c.b, c.a, c.beta, c.c, uintptr(c.space), unsafe.Pointer(s.handle.C()))
}

// plan returns the algorithm of a shape, asked for once. It runs on the thread.
func (d *Device) plan(g gemmShape) (*cublaslt.Plan, error) {
	if p, ok := d.plans[g]; ok {
		return p, nil
	}
	p, err := d.handle.Plan(cublaslt.Shape{
		M: g.n, N: g.m, K: g.k,
		A: g.b.matrix(g.transB), B: g.a.matrix(g.transA), C: g.c.matrix(false),
		WorkspaceBytes: multiplyBytes,
	})
	if err != nil {
		return nil, err
	}
	d.plans[g] = p
	return p, nil
}

func (o operand) matrix(trans bool) cublaslt.Matrix {
	return cublaslt.Matrix{Type: cublasTypes[o.dtype], Trans: trans, Stride: o.stride, Align: o.align}
}
