//go:build cuda

package cuda

import (
	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// expandVector is how many elements of one byte a thread expands.
const expandVector = 16

// expandKernels are the fast kernels, to bf16, by the stored type.
var expandKernels = map[tensor.DType]string{tensor.E5M2: "expand_e5m2_bf16", tensor.E4M3: "expand_e4m3_bf16", tensor.I8: "expand_i8_bf16"}

func launchExpand(s *stream, k gpu.Kernel) error {
	op := k.(ops.Expand)
	y, w := op.Y, op.W.Data
	if symbol, ok := expandKernels[w.DType]; ok && y.DType == tensor.BF16 && w.Cols()%expandVector == 0 && s.aligned(y, w) {
		return s.pointwise(symbol, w.Rows(), w.Cols(), expandVector, list(s.matrix(y), s.matrix(w), []arg{s.ptr(op.W.Scale)})...)
	}
	return s.convert(y, op.W, tensor.Tensor{})
}

// convert queues y = x·scale between any two types; with ids rows of a table.
func (s *stream) convert(y tensor.Tensor, x tensor.Weight, ids tensor.Tensor) error {
	return s.pointwise("convert", y.Rows(), y.Cols(), 1,
		list(s.typed(y), s.typed(x.Data), []arg{s.ptr(x.Scale), s.ptr(ids), integer(x.Data.Rows())})...)
}

// castVector is how many elements a thread casts.
const castVector = 8

func launchCast(s *stream, k gpu.Kernel) error {
	op := k.(ops.Cast)
	y, x := op.Y, op.X
	if y.DType == x.DType {
		return launchCopy(s, ops.Copy{Y: y, X: x})
	}
	flat(&y, &x)
	from, to := typeNames[x.DType], typeNames[y.DType]
	if from != "" && to != "" && x.Cols()%castVector == 0 && s.aligned(y, x) {
		return s.pointwise("cast_"+from+"_"+to, x.Rows(), x.Cols(), castVector, list(s.matrix(y), s.matrix(x))...)
	}
	return s.convert(y, tensor.Weight{Data: x}, tensor.Tensor{})
}

// launchLookup gives NaN for an id outside the table: the card cannot name it.
func launchLookup(s *stream, k gpu.Kernel) error {
	op := k.(ops.Lookup)
	return s.convert(op.Y, op.W, op.IDs)
}
