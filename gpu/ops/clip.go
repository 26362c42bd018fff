package ops

import (
	"math"

	"longship/gpu"
	"longship/gpu/tensor"
	"longship/internal/dtype"
)

// SumSquares is Sum[0] += Σ X², in float64 and a fixed order. X F32 or BF16 in
// any shape, Sum [1] F64; called for every gradient of a scope it gives the square
// of their global norm. Zero it first.
type SumSquares struct{ Sum, X tensor.Tensor }

// Name is "sum_squares".
func (SumSquares) Name() string { return "sum_squares" }

// Check demands one sum.
func (k SumSquares) Check() error {
	var c check
	c.matrix("x", k.X, k.X.Rows(), k.X.Cols())
	c.array("sum", k.Sum, tensor.F64, 1)
	return c.err
}

// Host sums rows in pieces, then the pieces in order.
func (k SumSquares) Host(w gpu.Workers) error {
	x, n, size := rawRows(k.X), k.X.Rows(), k.X.DType.Size()
	if k.X.Contiguous() {
		x, n = bytesOf{data: x.data, width: k.X.Len() * size}, 1
	}
	for i := range n {
		row, cols := x.row(i), x.width/size
		sums := make([]float64, (cols+piece-1)/piece)
		w.For(cols, piece, func(lo, hi int) {
			var sum float64
			for _, v := range singles(k.X.DType, row[lo*size:hi*size]) {
				sum += float64(v) * float64(v)
			}
			sums[lo/piece] = sum
		})
		for _, s := range sums {
			tensor.Host[float64](k.Sum)[0] += s
		}
	}
	return nil
}

// singles returns elements as float32, without a copy where they are.
func singles(dt tensor.DType, raw []byte) []float32 {
	if dt == tensor.F32 {
		return dtype.View[float32](raw)
	}
	out := make([]float32, len(raw)/dt.Size())
	toF32(dt)(out, raw)
	return out
}

// ClipNorm turns a sum of squares into the norm and the factor that clips it:
//
//	Norm[0] = sqrt(Sum[0]),   Coef[0] = min(1, Max / (Norm[0] + 1e-6))
//
// Sum [1] F64, Norm and Coef [1] F32. Flag [1] I32, where given, is set to 1 if
// the norm is not finite. Source: torch clip_grad_norm_.
type ClipNorm struct {
	Coef, Norm, Sum tensor.Tensor
	Max             float64
	Flag            tensor.Tensor
}

// Name is "clip_norm".
func (ClipNorm) Name() string { return "clip_norm" }

// Check demands scalars.
func (k ClipNorm) Check() error {
	var c check
	c.array("sum", k.Sum, tensor.F64, 1)
	c.array("norm", k.Norm, tensor.F32, 1)
	c.array("coef", k.Coef, tensor.F32, 1)
	c.flag(k.Flag)
	return c.err
}

// Host computes the two scalars.
func (k ClipNorm) Host(gpu.Workers) error {
	norm := float32(math.Sqrt(tensor.Host[float64](k.Sum)[0]))
	k.Norm.Float32s()[0] = norm
	k.Coef.Float32s()[0] = min(1, float32(k.Max)/(norm+1e-6))
	if k.Flag.Valid() && !finite(norm) {
		tensor.Host[int32](k.Flag)[0] = 1
	}
	return nil
}

// EMA moves a running average towards a parameter: Shadow -= (1-Decay)·(Shadow - P),
// unless Flag [1] I32 is given and set. Shadow F32, P F32 or BF16, contiguous, of
// equal size.
type EMA struct {
	Shadow, P tensor.Tensor
	Decay     float64
	Flag      tensor.Tensor
}

// Name is "ema".
func (EMA) Name() string { return "ema" }

// Check demands equal sizes.
func (k EMA) Check() error {
	var c check
	c.parameter("p", k.P, k.P.Len())
	c.array("shadow", k.Shadow, tensor.F32, k.P.Len())
	c.flag(k.Flag)
	return c.err
}

// Host works element by element.
func (k EMA) Host(w gpu.Workers) error {
	if raised(k.Flag) {
		return nil
	}
	shadow, params, part := k.Shadow.Float32s(), elementsOf(k.P), float32(1-k.Decay)
	w.For(len(shadow), piece, func(lo, hi int) {
		var buf [adamPiece]float32
		for from := lo; from < hi; from += adamPiece {
			to := min(from+adamPiece, hi)
			p, shadow := params.load(buf[:], from, to), shadow[from:to]
			for i := range p {
				shadow[i] -= part * (shadow[i] - p[i])
			}
		}
	})
	return nil
}
