//go:build cuda

package cuda

import (
	"fmt"

	"longship/gpu/tensor"
)

// pointwiseThreads is the block of kernels that take an element, or a vector, a thread.
const pointwiseThreads = 256

// typeNames are the types that kernels are stamped out for.
var typeNames = map[tensor.DType]string{tensor.F32: "f32", tensor.BF16: "bf16"}

// typeName returns the one type of activations as kernels' names have it.
// Absent tensors do not count.
func typeName(ts ...tensor.Tensor) (string, error) {
	name, ok := typeNames[ts[0].DType]
	if !ok {
		return "", fmt.Errorf("there is no code for %s activations", ts[0].DType)
	}
	for _, t := range ts {
		if t.Valid() && t.DType != ts[0].DType {
			return "", fmt.Errorf("activations are %s and %s, want one type", ts[0].DType, t.DType)
		}
	}
	return name, nil
}

// accessBytes is what a thread moves in one access at best.
const accessBytes = 16

// variant returns the ending of the kernel for these activations, and how many
// neighbouring columns a thread takes: as many as make 16 bytes where all rows
// start on 16 bytes and cols holds whole vectors, else one.
func (s *stream) variant(cols int, ts ...tensor.Tensor) (suffix string, width int, err error) {
	name, err := typeName(ts...)
	if err != nil {
		return "", 0, err
	}
	width = accessBytes / ts[0].DType.Size()
	if cols%width != 0 || !s.aligned(ts...) {
		return name, 1, nil
	}
	return fmt.Sprintf("%sx%d", name, width), width, nil
}

// aligned says whether every row of all tensors starts on 16 bytes.
func (s *stream) aligned(ts ...tensor.Tensor) bool {
	for _, t := range ts {
		if !t.Valid() {
			continue
		}
		if s.ptr(t)%accessBytes != 0 || t.Rows() > 1 && int(stride(t))*t.DType.Size()%accessBytes != 0 {
			return false
		}
	}
	return true
}

// flat returns tensors of one shape as single rows where all are contiguous, so
// that narrow ones fill blocks too; else as they are.
func flat(ts ...*tensor.Tensor) {
	for _, t := range ts {
		if t.Valid() && !t.Contiguous() {
			return
		}
	}
	for _, t := range ts {
		if t.Valid() {
			*t = t.View(1, t.Len())
		}
	}
}

// pointwise queues a kernel that works at Places (kernels/common.cuh): its last
// two parameters are the blocks a row takes and the columns. Nothing is queued
// for no elements.
func (s *stream) pointwise(symbol string, rows, cols, width int, args ...arg) error {
	if rows == 0 || cols == 0 {
		return nil
	}
	across := blocks(cols, pointwiseThreads*width)
	return s.kernel(symbol, dim{rows * across}, dim{pointwiseThreads}, 0, append(args, integer(across), integer(cols))...)
}

// matrix is a tensor as two arguments: address and distance of rows.
func (s *stream) matrix(t tensor.Tensor) []arg { return []arg{s.ptr(t), stride(t)} }

// typed is a tensor of any type as three arguments: address, distance of rows, type.
func (s *stream) typed(t tensor.Tensor) []arg { return append(s.matrix(t), elementType(t)) }

// elementType is a type by the kernels' number (kernels/common.cuh).
func elementType(t tensor.Tensor) arg { return arg(t.DType) }

// list joins arguments.
func list(parts ...[]arg) []arg {
	var all []arg
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// roundUp returns the least multiple of unit that is at least n and 1.
func roundUp(n, unit int) int { return max(blocks(n, unit), 1) * unit }
