//go:build cuda

package cuda

import (
	"math"

	"longship/gpu/tensor"
)

// dim is a grid in blocks or a block in threads: x, y, z; a zero counts as one.
type dim [3]int

// arg is one argument of a kernel. The driver reads as many of its low bytes as
// the kernel's parameter has: 8 for a pointer or a long, 4 for an int or a float.
type arg = uint64

// integer is an int, long or unsigned parameter.
func integer(i int) arg { return uint64(i) }

// float is a float parameter.
func float(f float32) arg { return uint64(math.Float32bits(f)) }

// boolean is an int parameter that is 0 or 1.
func boolean(b bool) arg {
	if b {
		return 1
	}
	return 0
}

// ptr is the address of a tensor's first element; the zero tensor, which stands
// for "none", gives a null pointer. The tensor must be on the device or in
// page-locked memory.
func (s *stream) ptr(t tensor.Tensor) arg {
	if !t.Valid() {
		return 0
	}
	at, err := s.dev.address(t.Buf)
	if err != nil {
		s.Fail(err)
		return 0
	}
	return uint64(at) + uint64(t.Off)
}

// stride is the distance between two rows in elements, for any parameter that
// walks rows; a contiguous tensor's is its number of columns.
func stride(t tensor.Tensor) arg {
	if t.Contiguous() {
		return uint64(t.Cols())
	}
	return uint64(t.Stride)
}

// blocks is the number of blocks of size that cover n.
func blocks(n, size int) int { return (n + size - 1) / size }
