package ops

import (
	"math"

	"longship/gpu"
	"longship/gpu/tensor"
)

// LayerNorm is FLUX.2's modulated layer norm (adaLN): every row of width D is
// brought to mean 0 and (biased) variance 1, without parameters, then scaled
// and shifted by its sample's modulation:
//
//	x̂ = (x - mean) · rstd,   rstd = 1/sqrt(var + Eps)
//	y = (1 + Scale[b]) · x̂ + Shift[b]
//
// X, Y [B·S, D], Shift, Scale [B, D]: row i belongs to sample i / S. Without
// both it is plain layer norm. Mean and RStd [B·S] are saved for the backward;
// both may be absent where there is none. Y may be X. Source: torch
// layer_norm; diffusers Flux2Transformer2DModel.
type LayerNorm struct {
	Y, X         tensor.Tensor
	Shift, Scale tensor.Tensor
	Mean, RStd   tensor.Tensor
	Eps          float32
}

// Name is "layer_norm".
func (LayerNorm) Name() string { return "layer_norm" }

// Check demands shapes that fit.
func (k LayerNorm) Check() error {
	var c check
	n, d := k.X.Rows(), k.X.Cols()
	c.matrix("x", k.X, n, d)
	c.matrix("y", k.Y, n, d)
	if k.Shift.Valid() || k.Scale.Valid() {
		b := k.Scale.Rows()
		c.matrix("scale", k.Scale, b, d)
		c.matrix("shift", k.Shift, b, d)
		c.divides("rows of x over samples", n, b)
	}
	if k.Mean.Valid() || k.RStd.Valid() {
		c.array("mean", k.Mean, tensor.F32, n)
		c.array("rstd", k.RStd, tensor.F32, n)
	}
	return c.err
}

// Host normalises row by row; sums are in float64.
func (k LayerNorm) Host(w gpu.Workers) error {
	x, y, shift, scale := open(k.X), open(k.Y), open(k.Shift), open(k.Scale)
	mean, rstd := open(k.Mean), open(k.RStd)
	eachRow(w, x.n, x.cols, func(i int) {
		in, out := x.row(i), y.row(i)
		mu, r := moments(in, k.Eps)
		if mean.valid() {
			mean.data[i], rstd.data[i] = mu, r
		}
		if !scale.valid() {
			for j, v := range in {
				out[j] = (v - mu) * r
			}
			return
		}
		b := i * scale.n / x.n
		sc, sh := scale.row(b), shift.row(b)
		for j, v := range in {
			out[j] = (1+sc[j])*((v-mu)*r) + sh[j]
		}
	})
	return nil
}

// moments returns the mean of x and 1/sqrt(variance + eps).
func moments(x []float32, eps float32) (mean, rstd float32) {
	var sum float64
	for _, v := range x {
		sum += float64(v)
	}
	mu := sum / float64(len(x))
	var sq float64
	for _, v := range x {
		d := float64(v) - mu
		sq += d * d
	}
	return float32(mu), float32(1 / math.Sqrt(sq/float64(len(x))+float64(eps)))
}

// LayerNormBackward is the gradient of LayerNorm. With g = (1 + Scale)·DY and
// x̂ from the saved Mean and RStd, means taken over the row:
//
//	DX = rstd · (g - mean(g) - x̂·mean(g·x̂))      assigned, or added with Accumulate
//	DScale[b] += Σ DY·x̂,   DShift[b] += Σ DY      over the sample's rows; both may be absent
//
// DX may be DY.
type LayerNormBackward struct {
	DX, DY, X      tensor.Tensor
	Scale          tensor.Tensor
	Mean, RStd     tensor.Tensor
	DShift, DScale tensor.Tensor
	Accumulate     bool
}

// Name is "layer_norm_backward".
func (LayerNormBackward) Name() string { return "layer_norm_backward" }

// Check demands shapes that fit.
func (k LayerNormBackward) Check() error {
	var c check
	n, d := k.X.Rows(), k.X.Cols()
	c.matrix("x", k.X, n, d)
	c.matrix("dy", k.DY, n, d)
	c.matrix("dx", k.DX, n, d)
	c.array("mean", k.Mean, tensor.F32, n)
	c.array("rstd", k.RStd, tensor.F32, n)
	if k.Scale.Valid() {
		b := k.Scale.Rows()
		c.matrix("scale", k.Scale, b, d)
		c.divides("rows of x over samples", n, b)
		c.optional("dscale", k.DScale, b, d)
		c.optional("dshift", k.DShift, b, d)
	} else {
		c.that(!k.DScale.Valid() && !k.DShift.Valid(), "dscale or dshift without scale")
	}
	return c.err
}

// Host computes the parameters' sums first, since DX may overwrite DY.
func (k LayerNormBackward) Host(w gpu.Workers) error {
	x, dy, dx, scale := open(k.X), open(k.DY), open(k.DX), open(k.Scale)
	mean, rstd := k.Mean.Float32s(), k.RStd.Float32s()
	if k.DScale.Valid() || k.DShift.Valid() {
		k.parameters(w, x, dy, mean, rstd)
	}
	w.For(x.n, grain(x.cols), func(lo, hi int) {
		g := make([]float32, x.cols)
		for i := lo; i < hi; i++ {
			in, up, out := x.row(i), dy.row(i), dx.row(i)
			copy(g, up)
			if scale.valid() {
				for j, s := range scale.row(i * scale.n / x.n) {
					g[j] *= 1 + s
				}
			}
			mu, r := mean[i], rstd[i]
			var sum, dot float64
			for j, v := range g {
				sum += float64(v)
				dot += float64(v) * float64((in[j]-mu)*r)
			}
			m, p := float32(sum/float64(len(g))), float32(dot/float64(len(g)))
			for j, v := range g {
				d := r * (v - m - (in[j]-mu)*r*p)
				if k.Accumulate {
					d += out[j]
				}
				out[j] = d
			}
		}
	})
	return nil
}

func (k LayerNormBackward) parameters(w gpu.Workers, x, dy rows, mean, rstd []float32) {
	dscale, dshift := open(k.DScale), open(k.DShift)
	samples := open(k.Scale).n
	per := x.n / samples
	for b := range samples {
		at := b * per
		if dscale.valid() {
			sumPieces(w, dscale.row(b), per, grain(x.cols), func(acc []float32, lo, hi int) {
				for i := at + lo; i < at+hi; i++ {
					in, up := x.row(i), dy.row(i)
					for j, v := range up {
						acc[j] += v * ((in[j] - mean[i]) * rstd[i])
					}
				}
			})
		}
		if dshift.valid() {
			sumPieces(w, dshift.row(b), per, grain(x.cols), func(acc []float32, lo, hi int) {
				for i := at + lo; i < at+hi; i++ {
					for j, v := range dy.row(i) {
						acc[j] += v
					}
				}
			})
		}
	}
}
