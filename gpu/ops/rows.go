package ops

import (
	"fmt"

	"longship/gpu"
	"longship/gpu/blas"
	"longship/gpu/tensor"
	"longship/internal/dtype"
)

// rows is a float32 tensor in host memory, read row by row.
type rows struct {
	data    []float32
	n, cols int
	stride  int
}

// open returns t for the host. The zero tensor opens as no rows.
func open(t tensor.Tensor) rows {
	if !t.Valid() {
		return rows{}
	}
	stride := t.Stride
	if t.Contiguous() {
		stride = t.Cols()
	}
	return rows{data: tensor.Host[float32](t), n: t.Rows(), cols: t.Cols(), stride: stride}
}

func (r rows) row(i int) []float32 {
	at := i * r.stride
	return r.data[at : at+r.cols : at+r.cols]
}

// valid says whether there was a tensor.
func (r rows) valid() bool { return r.cols > 0 }

func (r rows) matrix() blas.Matrix {
	return blas.Matrix{Data: r.data, Rows: r.n, Cols: r.cols, Stride: r.stride}
}

// vector returns the elements of a small parameter as float32.
func vector(t tensor.Tensor) []float32 {
	switch t.DType {
	case tensor.F32:
		return t.Float32s()
	case tensor.BF16:
		dst := make([]float32, t.Len())
		dtype.BF16ToF32(dst, tensor.Host[uint16](t))
		return dst
	case tensor.F16:
		dst := make([]float32, t.Len())
		dtype.F16ToF32(dst, tensor.Host[uint16](t))
		return dst
	}
	panic(fmt.Sprintf("ops: vector of %s", t.DType))
}

// piece is about how many elements one piece of a parallel loop handles.
const piece = 1 << 14

// grain returns the rows of a piece whose rows cost cols elements each.
func grain(cols int) int { return max(1, piece/max(cols, 1)) }

// eachRow runs body for n rows of cols elements, several at a time.
func eachRow(w gpu.Workers, n, cols int, body func(i int)) {
	w.For(n, grain(cols), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			body(i)
		}
	})
}

// sumPieces adds up what parts of [0,n) contribute to a vector, in the order of
// the pieces: the same bits on any number of cores. body adds rows [lo,hi) to acc.
func sumPieces(w gpu.Workers, dst []float32, n, grain int, body func(acc []float32, lo, hi int)) {
	pieces := (n + grain - 1) / grain
	width := len(dst)
	partial := make([]float32, pieces*width)
	w.For(n, grain, func(lo, hi int) {
		p := lo / grain
		body(partial[p*width:(p+1)*width], lo, hi)
	})
	for p := range pieces {
		for j, v := range partial[p*width : (p+1)*width] {
			dst[j] += v
		}
	}
}

// raised says whether a flag is set; no flag is never set.
func raised(flag tensor.Tensor) bool {
	return flag.Valid() && tensor.Host[int32](flag)[0] != 0
}
