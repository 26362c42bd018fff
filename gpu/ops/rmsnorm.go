package ops

import (
	"math"

	"longship/gpu"
	"longship/gpu/tensor"
)

// RMSNorm is y = w · x · rstd, rstd = 1/sqrt(mean(x²) + Eps), over groups of
// len(W) columns: the whole row, or every head of a row [H·hd] where W is [hd].
//
// X, Y [n, G·len(W)]; W in any float type; RStd [n, G] is saved for the backward
// and may be absent where there is none. Y may be X. Source: torch RMSNorm, with
// float32 statistics.
type RMSNorm struct {
	Y, X, W, RStd tensor.Tensor
	Eps           float32
}

// Name is "rms_norm".
func (RMSNorm) Name() string { return "rms_norm" }

// Check demands shapes that fit.
func (k RMSNorm) Check() error {
	var c check
	c.rms(k.X, k.W, k.RStd, false)
	c.matrix("y", k.Y, k.X.Rows(), k.X.Cols())
	return c.err
}

// rms demands what every form of RMSNorm does of x, w and rstd.
func (c *check) rms(x, w, rstd tensor.Tensor, needed bool) {
	c.matrix("x", x, x.Rows(), x.Cols())
	c.vector("w", w, w.Len())
	c.divides("columns of x over w", x.Cols(), w.Len())
	if c.err == nil && (needed || rstd.Valid()) {
		c.array("rstd", rstd, tensor.F32, x.Rows()*(x.Cols()/w.Len()))
	}
}

// Host normalises group by group.
func (k RMSNorm) Host(w gpu.Workers) error {
	x, y, weight, rstd := open(k.X), open(k.Y), vector(k.W), open(k.RStd)
	groups := x.cols / len(weight)
	eachRow(w, x.n, x.cols, func(i int) {
		in, out := x.row(i), y.row(i)
		for g := range groups {
			at := g * len(weight)
			r := rms(in[at:at+len(weight)], k.Eps)
			if rstd.valid() {
				rstd.data[i*groups+g] = r
			}
			for j, wj := range weight {
				out[at+j] = in[at+j] * r * wj
			}
		}
	})
	return nil
}

// rms returns 1/sqrt(mean(x²) + eps).
func rms(x []float32, eps float32) float32 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return float32(1 / math.Sqrt(sum/float64(len(x))+float64(eps)))
}

// RMSNormBackward is the gradient of RMSNorm. With g = W·DY per group:
//
//	DX = rstd·g - x·rstd³·mean(g·x)     assigned, or added with Accumulate
//	DW += Σ DY·x·rstd                   over rows and groups; may be absent
//
// DX may be DY.
type RMSNormBackward struct {
	DX, DY, X, W, RStd tensor.Tensor
	DW                 tensor.Tensor
	Accumulate         bool
}

// Name is "rms_norm_backward".
func (RMSNormBackward) Name() string { return "rms_norm_backward" }

// Check demands shapes that fit.
func (k RMSNormBackward) Check() error {
	var c check
	c.rms(k.X, k.W, k.RStd, true)
	c.matrix("dy", k.DY, k.X.Rows(), k.X.Cols())
	c.matrix("dx", k.DX, k.X.Rows(), k.X.Cols())
	if k.DW.Valid() {
		c.array("dw", k.DW, tensor.F32, k.W.Len())
	}
	return c.err
}

// Host computes DW first, since DX may overwrite DY.
func (k RMSNormBackward) Host(w gpu.Workers) error {
	x, dy, dx, weight, rstd := open(k.X), open(k.DY), open(k.DX), vector(k.W), k.RStd.Float32s()
	groups, width := x.cols/len(weight), len(weight)
	if k.DW.Valid() {
		sumPieces(w, k.DW.Float32s(), x.n, grain(x.cols), func(acc []float32, lo, hi int) {
			for i := lo; i < hi; i++ {
				in, up := x.row(i), dy.row(i)
				for j, v := range up {
					acc[j%width] += v * in[j] * rstd[i*groups+j/width]
				}
			}
		})
	}
	w.For(x.n, grain(x.cols), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			for g := range groups {
				at := g * width
				rmsGradient(dx.row(i)[at:at+width], dy.row(i)[at:at+width], x.row(i)[at:at+width], weight, rstd[i*groups+g], k.Accumulate)
			}
		}
	})
	return nil
}

// rmsGradient writes the gradient of one group; dx may be dy.
func rmsGradient(dx, dy, x, w []float32, r float32, accumulate bool) {
	var dot float64
	for j, v := range dy {
		dot += float64(v*w[j]) * float64(x[j])
	}
	p := float32(dot/float64(len(x))) * r * r
	for j, v := range dy {
		d := r * (v*w[j] - x[j]*p)
		if accumulate {
			d += dx[j]
		}
		dx[j] = d
	}
}
