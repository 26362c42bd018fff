package ops

import (
	"sync"

	"longship/gpu"
	"longship/gpu/tensor"
	"longship/internal/dtype"
)

// Expand is Y[i,j] = W.Data[i,j] · W.Scale[i]: a frozen weight as it is stored
// (e5m2, e4m3, i8, bf16, f16 or f32; without Scale the factor is 1) made ready
// for a Gemm. Y has the data's shape and is f32 or bf16; the product is taken in
// float32 and rounded once.
type Expand struct {
	Y tensor.Tensor
	W tensor.Weight
}

// Name is "expand".
func (Expand) Name() string { return "expand" }

// Check demands a type that can be expanded and one scale a row.
func (k Expand) Check() error {
	var c check
	d := k.W.Data
	c.that(d.Valid(), "weight is missing")
	c.that(toF32(d.DType) != nil, "weight is %s %v, which cannot be expanded", d.DType, d.Shape)
	c.that(k.Y.DType == tensor.F32 || k.Y.DType == tensor.BF16, "y is %s, want f32 or bf16", k.Y.DType)
	c.typed("y", k.Y, k.Y.DType, d.Rows(), d.Cols())
	if k.W.Scale.Valid() {
		c.array("scale", k.W.Scale, tensor.F32, d.Rows())
	}
	return c.err
}

// Cost counts the bytes read and written.
func (k Expand) Cost() gpu.Cost {
	return gpu.Cost{FLOPs: int64(k.Y.Len()), Bytes: k.W.Data.Bytes() + k.Y.Bytes()}
}

// Host converts rows by table.
func (k Expand) Host(w gpu.Workers) error {
	convert(w, k.Y, k.W.Data, scales(k.W))
	return nil
}

// Cast is Y = X in another type. Narrowing rounds to nearest, ties to even;
// e5m2 and e4m3 saturate at their largest finite values, bf16 and f16 go to
// infinity as IEEE says; NaN stays NaN. i8 can only be read.
type Cast struct {
	Y, X tensor.Tensor
}

// Name is "cast".
func (Cast) Name() string { return "cast" }

// Check demands equal shapes and types that can be converted.
func (k Cast) Check() error {
	var c check
	c.that(toF32(k.X.DType) != nil, "x is %s %v, which cannot be converted", k.X.DType, k.X.Shape)
	c.that(fromF32(k.Y.DType) != nil, "y is %s %v, which cannot be converted to", k.Y.DType, k.Y.Shape)
	c.typed("y", k.Y, k.Y.DType, k.X.Rows(), k.X.Cols())
	return c.err
}

// Cost counts the bytes read and written.
func (k Cast) Cost() gpu.Cost { return gpu.Cost{Bytes: k.X.Bytes() + k.Y.Bytes()} }

// Host converts row by row.
func (k Cast) Host(w gpu.Workers) error {
	convert(w, k.Y, k.X, nil)
	return nil
}

// convert writes x, its rows times scale where there is one, to y.
func convert(w gpu.Workers, y, x tensor.Tensor, scale []float32) {
	read, write := toF32(x.DType), fromF32(y.DType)
	in, out := rawRows(x), rawRows(y)
	n, cols := x.Rows(), x.Cols()
	w.For(n, grain(cols), func(lo, hi int) {
		buf := make([]float32, cols)
		for i := lo; i < hi; i++ {
			dst := buf
			if y.DType == tensor.F32 {
				dst = dtype.View[float32](out.row(i))
			}
			switch {
			case scale == nil:
				read(dst, in.row(i))
			case x.DType.Size() == 1:
				expandBytes(dst, in.row(i), byteValues(x.DType), scale[i])
			default:
				read(dst, in.row(i))
				for j := range dst {
					dst[j] *= scale[i]
				}
			}
			if y.DType != tensor.F32 {
				write(out.row(i), dst)
			}
		}
	})
}

// expandBytes is dst = values[src]·scale in one pass, four at a time.
func expandBytes(dst []float32, src []byte, values *[256]float32, scale float32) {
	n := len(src) &^ 3
	for j := 0; j < n; j += 4 {
		b, d := src[j:j+4:j+4], dst[j:j+4:j+4]
		d[0], d[1] = values[b[0]]*scale, values[b[1]]*scale
		d[2], d[3] = values[b[2]]*scale, values[b[3]]*scale
	}
	for j := n; j < len(src); j++ {
		dst[j] = values[src[j]] * scale
	}
}

// byteValues returns the values of all elements of a one-byte type.
func byteValues(dt tensor.DType) *[256]float32 {
	switch dt {
	case tensor.E5M2:
		return e5m2Values()
	case tensor.E4M3:
		return e4m3Values()
	}
	return i8Values()
}

var (
	e5m2Values = sync.OnceValue(func() *[256]float32 { return valuesOf(tensor.E5M2) })
	e4m3Values = sync.OnceValue(func() *[256]float32 { return valuesOf(tensor.E4M3) })
	i8Values   = sync.OnceValue(func() *[256]float32 { return valuesOf(tensor.I8) })
)

func valuesOf(dt tensor.DType) *[256]float32 {
	var bytes [256]byte
	for i := range bytes {
		bytes[i] = byte(i)
	}
	var values [256]float32
	toF32(dt)(values[:], bytes[:])
	return &values
}

// bytesOf is a tensor of any type in host memory, read row by row.
type bytesOf struct {
	data        []byte
	row0, width int
}

func rawRows(t tensor.Tensor) bytesOf {
	stride := t.Stride
	if t.Contiguous() {
		stride = t.Cols()
	}
	return bytesOf{data: t.Raw(), row0: stride * t.DType.Size(), width: t.Cols() * t.DType.Size()}
}

func (b bytesOf) row(i int) []byte { return b.data[i*b.row0 : i*b.row0+b.width] }

// toF32 returns the bulk conversion of little-endian elements to float32, nil where there is none.
func toF32(dt tensor.DType) func(dst []float32, src []byte) {
	switch dt {
	case tensor.F32:
		return func(dst []float32, src []byte) { copy(dst, dtype.View[float32](src)) }
	case tensor.BF16:
		return func(dst []float32, src []byte) { dtype.BF16ToF32(dst, dtype.View[uint16](src)) }
	case tensor.F16:
		return func(dst []float32, src []byte) { dtype.F16ToF32(dst, dtype.View[uint16](src)) }
	case tensor.E5M2:
		return dtype.E5M2ToF32
	case tensor.E4M3:
		return dtype.E4M3ToF32
	case tensor.I8:
		return func(dst []float32, src []byte) {
			for i, v := range dtype.View[int8](src) {
				dst[i] = float32(v)
			}
		}
	}
	return nil
}

// fromF32 returns the bulk conversion from float32, nil where there is none.
func fromF32(dt tensor.DType) func(dst []byte, src []float32) {
	switch dt {
	case tensor.F32:
		return func(dst []byte, src []float32) { copy(dtype.View[float32](dst), src) }
	case tensor.BF16:
		return func(dst []byte, src []float32) { dtype.F32ToBF16(dtype.View[uint16](dst), src) }
	case tensor.F16:
		return func(dst []byte, src []float32) { dtype.F32ToF16(dtype.View[uint16](dst), src) }
	case tensor.E5M2:
		return dtype.F32ToE5M2Sat
	case tensor.E4M3:
		return dtype.F32ToE4M3Sat
	}
	return nil
}
