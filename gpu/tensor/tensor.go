// Package tensor has the one tensor type: a typed, shaped window on a buffer.
// It is a small value; it owns nothing. Operations live in gpu/ops.
package tensor

import (
	"fmt"
	"unsafe"

	"longship/gpu"
)

// DType is an element type.
type DType uint8

// The element types. E5M2 is the product's BF8; E4M3 is e4m3fn (no infinity).
const (
	F32 DType = iota + 1
	BF16
	F16
	E5M2
	E4M3
	I8
	U8
	I32
	I64
	F64
)

var dtypeNames = [...]string{F32: "f32", BF16: "bf16", F16: "f16", E5M2: "e5m2", E4M3: "e4m3", I8: "i8", U8: "u8", I32: "i32", I64: "i64", F64: "f64"}
var dtypeSizes = [...]int{F32: 4, BF16: 2, F16: 2, E5M2: 1, E4M3: 1, I8: 1, U8: 1, I32: 4, I64: 8, F64: 8}

// String returns the short lower-case name, "bf16".
func (d DType) String() string {
	if int(d) < len(dtypeNames) && d != 0 {
		return dtypeNames[d]
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// Size returns the bytes of one element, 0 for the zero DType.
func (d DType) Size() int { return dtypeSizes[d] }

// Tensor is a row-major array on a buffer. All dimensions but the last are
// rows; the distance between two rows is Stride elements (the last dimension
// where the tensor is contiguous), so a range of columns is a tensor too.
type Tensor struct {
	Buf    gpu.Buffer
	Off    int64 // bytes into Buf
	DType  DType
	Shape  []int
	Stride int // elements from one row to the next
}

// New returns a contiguous tensor at off bytes in buf.
func New(buf gpu.Buffer, off int64, dt DType, shape ...int) Tensor {
	t := Tensor{Buf: buf, Off: off, DType: dt, Shape: shape, Stride: 1}
	if len(shape) > 0 {
		t.Stride = shape[len(shape)-1]
	}
	return t
}

// Valid says whether t is a tensor and not the zero value (which stands for "none").
func (t Tensor) Valid() bool { return t.DType != 0 }

// Cols returns the last dimension, 1 for a scalar.
func (t Tensor) Cols() int {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[len(t.Shape)-1]
}

// Rows returns the product of all dimensions but the last.
func (t Tensor) Rows() int {
	n := 1
	for i := 0; i+1 < len(t.Shape); i++ {
		n *= t.Shape[i]
	}
	return n
}

// Len returns the number of elements.
func (t Tensor) Len() int { return t.Rows() * t.Cols() }

// Bytes returns the bytes of a contiguous tensor of this shape and type.
func (t Tensor) Bytes() int64 { return int64(t.Len()) * int64(t.DType.Size()) }

// Contiguous says whether the rows lie one behind the other.
func (t Tensor) Contiguous() bool { return t.Stride == t.Cols() || t.Rows() <= 1 }

// Region returns the memory of a contiguous tensor.
func (t Tensor) Region() gpu.Region {
	if !t.Contiguous() {
		panic(fmt.Sprintf("tensor: Region of a strided tensor %v stride %d", t.Shape, t.Stride))
	}
	return gpu.Region{Buf: t.Buf, Off: t.Off, Len: t.Bytes()}
}

// View returns the same contiguous elements under another shape.
func (t Tensor) View(shape ...int) Tensor {
	v := New(t.Buf, t.Off, t.DType, shape...)
	if v.Len() != t.Len() || !t.Contiguous() {
		panic(fmt.Sprintf("tensor: view %v of %v (stride %d)", shape, t.Shape, t.Stride))
	}
	return v
}

// RowRange returns rows [lo, hi) as a [hi-lo, cols] tensor.
func (t Tensor) RowRange(lo, hi int) Tensor {
	if lo < 0 || hi < lo || hi > t.Rows() {
		panic(fmt.Sprintf("tensor: rows [%d,%d) of %v", lo, hi, t.Shape))
	}
	return Tensor{Buf: t.Buf, Off: t.Off + int64(lo)*int64(t.Stride)*int64(t.DType.Size()),
		DType: t.DType, Shape: []int{hi - lo, t.Cols()}, Stride: t.Stride}
}

// ColRange returns columns [lo, hi) of every row as a [rows, hi-lo] tensor.
func (t Tensor) ColRange(lo, hi int) Tensor {
	if lo < 0 || hi < lo || hi > t.Cols() {
		panic(fmt.Sprintf("tensor: columns [%d,%d) of %v", lo, hi, t.Shape))
	}
	return Tensor{Buf: t.Buf, Off: t.Off + int64(lo)*int64(t.DType.Size()),
		DType: t.DType, Shape: []int{t.Rows(), hi - lo}, Stride: t.Stride}
}

// Float32s returns the elements of a contiguous F32 tensor where the host can
// address them. It panics on another type or on device memory.
func (t Tensor) Float32s() []float32 { return slice[float32](t, F32) }

// Raw returns the bytes from the first element on, to the end of the buffer
// (for kernels that walk strided rows). Host-addressable memory only.
func (t Tensor) Raw() []byte { return t.Buf.Host()[t.Off:] }

// Host returns t's elements from the first to the last row's end, gaps of a
// strided tensor included, as a slice of T. The caller vouches for the type.
func Host[T any](t Tensor) []T {
	var z T
	n := t.Len()
	if n == 0 {
		return nil
	}
	if !t.Contiguous() {
		n = (t.Rows()-1)*t.Stride + t.Cols()
	}
	if int(unsafe.Sizeof(z)) != t.DType.Size() {
		panic(fmt.Sprintf("tensor: %s read as %T", t.DType, z))
	}
	b := t.Buf.Host()
	if b == nil {
		panic("tensor: not in host memory")
	}
	b = b[t.Off : t.Off+int64(n)*int64(t.DType.Size())]
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

func slice[T any](t Tensor, dt DType) []T {
	if t.DType != dt || !t.Contiguous() {
		panic(fmt.Sprintf("tensor: want contiguous %s, have %s %v stride %d", dt, t.DType, t.Shape, t.Stride))
	}
	return Host[T](t)
}

// Weight is a frozen parameter as it is stored: plain, or quantised with one
// float32 scale per output row (W[i,j] = Data[i,j] * Scale[i]).
type Weight struct {
	Data  Tensor
	Scale Tensor // [rows] F32; the zero Tensor where Data is not scaled
}
