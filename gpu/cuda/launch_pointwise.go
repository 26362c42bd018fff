//go:build cuda

package cuda

import (
	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// elementwise queues a kernel over tensors of one shape and type; more are the
// arguments behind the tensors.
func (s *stream) elementwise(name string, ts []tensor.Tensor, more ...arg) error {
	refs := make([]*tensor.Tensor, len(ts))
	for i := range ts {
		refs[i] = &ts[i]
	}
	flat(refs...)
	suffix, width, err := s.variant(ts[0].Cols(), ts...)
	if err != nil {
		return err
	}
	var args []arg
	for _, t := range ts {
		args = append(args, s.matrix(t)...)
	}
	return s.pointwise(name+"_"+suffix, ts[0].Rows(), ts[0].Cols(), width, append(args, more...)...)
}

func launchSwiGLU(s *stream, k gpu.Kernel) error {
	op := k.(ops.SwiGLU)
	return s.elementwise("swiglu", []tensor.Tensor{op.Y, op.Gate, op.Up})
}

func launchSwiGLUBackward(s *stream, k gpu.Kernel) error {
	op := k.(ops.SwiGLUBackward)
	return s.elementwise("swiglu_backward", []tensor.Tensor{op.DGate, op.DUp, op.DY, op.Gate, op.Up})
}

func launchSiLU(s *stream, k gpu.Kernel) error {
	op := k.(ops.SiLU)
	return s.elementwise("silu", []tensor.Tensor{op.Y, op.X})
}

func launchSiLUBackward(s *stream, k gpu.Kernel) error {
	op := k.(ops.SiLUBackward)
	return s.elementwise("silu_backward", []tensor.Tensor{op.DX, op.DY, op.X})
}

// combine queues y = alpha·a + beta·b.
func (s *stream) combine(y, a, b tensor.Tensor, alpha, beta float32, by tensor.Tensor) error {
	return s.elementwise("combine", []tensor.Tensor{y, a, b}, float(alpha), float(beta), s.ptr(by))
}

func launchAdd(s *stream, k gpu.Kernel) error {
	op := k.(ops.Add)
	return s.combine(op.Y, op.A, op.B, 1, 1, tensor.Tensor{})
}

func launchAddScaled(s *stream, k gpu.Kernel) error {
	op := k.(ops.AddScaled)
	return s.combine(op.Y, op.Y, op.X, 1, op.Alpha, tensor.Tensor{})
}

func launchScale(s *stream, k gpu.Kernel) error {
	op := k.(ops.Scale)
	return s.combine(op.Y, op.X, tensor.Tensor{}, op.Alpha, 0, op.By)
}

func launchAddBias(s *stream, k gpu.Kernel) error {
	op := k.(ops.AddBias)
	suffix, width, err := s.variant(op.X.Cols(), op.Y, op.X)
	if err != nil {
		return err
	}
	return s.pointwise("add_bias_"+suffix, op.X.Rows(), op.X.Cols(), width,
		list(s.matrix(op.Y), s.matrix(op.X), []arg{s.ptr(op.Bias), elementType(op.Bias)})...)
}

func launchGateResidual(s *stream, k gpu.Kernel) error {
	op := k.(ops.GateResidual)
	suffix, width, err := s.variant(op.X.Cols(), op.Y, op.X, op.H, op.Gate)
	if err != nil {
		return err
	}
	return s.pointwise("gate_residual_"+suffix, op.X.Rows(), op.X.Cols(), width,
		list(s.matrix(op.Y), s.matrix(op.X), s.matrix(op.H), s.matrix(op.Gate), []arg{perSample(op.X, op.Gate)})...)
}

// perSample is how many rows of x belong to one row of a tensor by sample, all where that is absent.
func perSample(x, bySample tensor.Tensor) arg {
	if !bySample.Valid() {
		return integer(x.Rows())
	}
	return integer(x.Rows() / bySample.Rows())
}

func launchGateResidualBackward(s *stream, k gpu.Kernel) error {
	op := k.(ops.GateResidualBackward)
	if op.DGate.Valid() { // first, since DH may overwrite DY
		name, err := typeName(op.DY, op.H)
		if err != nil {
			return err
		}
		err = s.columns("gate_columns_"+name, op.DY.Cols(), op.DGate.Rows(),
			list(s.matrix(op.DGate), s.matrix(op.DY), s.matrix(op.H), []arg{perSample(op.DY, op.DGate), integer(op.DY.Cols())})...)
		if err != nil {
			return err
		}
	}
	suffix, width, err := s.variant(op.DY.Cols(), op.DH, op.DY, op.Gate)
	if err != nil {
		return err
	}
	return s.pointwise("gate_scale_"+suffix, op.DY.Rows(), op.DY.Cols(), width,
		list(s.matrix(op.DH), s.matrix(op.DY), s.matrix(op.Gate), []arg{perSample(op.DY, op.Gate)})...)
}

// columns queues a kernel that sums columns (columnSum in kernels/common.cuh),
// 32 a block, for each sample.
func (s *stream) columns(symbol string, cols, samples int, args ...arg) error {
	return s.kernel(symbol, dim{blocks(cols, 32), samples}, dim{32 * 32}, 0, args...)
}
