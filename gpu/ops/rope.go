package ops

import (
	"longship/gpu"
	"longship/gpu/tensor"
)

// RoPE rotates pairs of a head's columns by an angle that depends on the
// token's position. Tables Cos and Sin are [S, hd] with one value per column;
// row i of X [n, H·hd] is at position i mod S.
//
// Interleaved (FLUX.2) pairs are neighbours (a,b) = (x[2j], x[2j+1]):
//
//	a' = a·cos - b·sin,   b' = b·cos + a·sin
//
// With Half (Mistral, Qwen) x[j] is paired with x[j+hd/2]. Inverse rotates by
// the opposite angle, which is the gradient. Y may be X.
type RoPE struct {
	Y, X     tensor.Tensor
	Cos, Sin tensor.Tensor
	Half     bool
	Inverse  bool
}

// Name is "rope".
func (RoPE) Name() string { return "rope" }

// Check demands shapes that fit.
func (k RoPE) Check() error {
	var c check
	c.rope(k.X, k.Cos, k.Sin)
	c.matrix("x", k.X, k.X.Rows(), k.X.Cols())
	c.matrix("y", k.Y, k.X.Rows(), k.X.Cols())
	return c.err
}

func (c *check) rope(x, cos, sin tensor.Tensor) {
	c.matrix("cos", cos, cos.Rows(), cos.Cols())
	c.matrix("sin", sin, cos.Rows(), cos.Cols())
	c.divides("columns of x over those of cos", x.Cols(), cos.Cols())
	c.divides("rows of x over positions", x.Rows(), cos.Rows())
	c.that(cos.Cols()%2 == 0, "cos has %d columns, want pairs", cos.Cols())
}

// Host rotates head by head.
func (k RoPE) Host(w gpu.Workers) error {
	x, y, cos, sin := open(k.X), open(k.Y), open(k.Cos), open(k.Sin)
	hd := cos.cols
	eachRow(w, x.n, x.cols, func(i int) {
		co, si := cos.row(i%cos.n), sin.row(i%cos.n)
		in, out := x.row(i), y.row(i)
		for at := 0; at < x.cols; at += hd {
			if k.Half {
				rotateHalf(out[at:at+hd], in[at:at+hd], co, si, k.Inverse)
			} else {
				rotatePairs(out[at:at+hd], in[at:at+hd], co, si, k.Inverse)
			}
		}
	})
	return nil
}

// rotatePairs rotates neighbours; y may be x.
func rotatePairs(y, x, cos, sin []float32, inverse bool) {
	for j := 0; j < len(x); j += 2 {
		a, b, c, s := x[j], x[j+1], cos[j], sin[j]
		if inverse {
			s = -s
		}
		y[j], y[j+1] = a*c-b*s, b*c+a*s
	}
}

// rotateHalf rotates x[j] with x[j+hd/2]; y may be x.
func rotateHalf(y, x, cos, sin []float32, inverse bool) {
	h := len(x) / 2
	for j := range h {
		a, b, c, s := x[j], x[j+h], cos[j], sin[j]
		if inverse {
			s = -s
		}
		y[j], y[j+h] = a*c-b*s, b*c+a*s
	}
}

// RMSNormRoPE is what FLUX.2 does to queries and keys: RMSNorm over each head
// with W [hd], then the interleaved RoPE, in one pass:
//
//	Y = rotate(W · x · rstd)
//
// Shapes as in RMSNorm and RoPE. Y may be X where no backward follows.
type RMSNormRoPE struct {
	Y, X, W, RStd tensor.Tensor
	Cos, Sin      tensor.Tensor
	Eps           float32
}

// Name is "rms_norm_rope".
func (RMSNormRoPE) Name() string { return "rms_norm_rope" }

// Check demands shapes that fit.
func (k RMSNormRoPE) Check() error {
	var c check
	c.rms(k.X, k.W, k.RStd, false)
	c.rope(k.X, k.Cos, k.Sin)
	c.that(k.W.Len() == k.Cos.Cols(), "w has %d elements and cos %d columns", k.W.Len(), k.Cos.Cols())
	c.matrix("y", k.Y, k.X.Rows(), k.X.Cols())
	return c.err
}

// Host works head by head.
func (k RMSNormRoPE) Host(w gpu.Workers) error {
	x, y, weight, rstd := open(k.X), open(k.Y), vector(k.W), open(k.RStd)
	cos, sin := open(k.Cos), open(k.Sin)
	hd := len(weight)
	heads := x.cols / hd
	eachRow(w, x.n, x.cols, func(i int) {
		in, out := x.row(i), y.row(i)
		for h := range heads {
			a, b := in[h*hd:(h+1)*hd], out[h*hd:(h+1)*hd]
			r := rms(a, k.Eps)
			if rstd.valid() {
				rstd.data[i*heads+h] = r
			}
			for j, wj := range weight {
				b[j] = a[j] * r * wj
			}
			rotatePairs(b, b, cos.row(i%cos.n), sin.row(i%cos.n), false)
		}
	})
	return nil
}

// RMSNormRoPEBackward is the gradient of RMSNormRoPE: DY is rotated back, then
// goes through the norm as in RMSNormBackward. DX is assigned; it may be DY. DW
// is added to and may be absent.
type RMSNormRoPEBackward struct {
	DX, DY, X, W, RStd tensor.Tensor
	Cos, Sin           tensor.Tensor
	DW                 tensor.Tensor
}

// Name is "rms_norm_rope_backward".
func (RMSNormRoPEBackward) Name() string { return "rms_norm_rope_backward" }

// Check demands shapes that fit.
func (k RMSNormRoPEBackward) Check() error {
	var c check
	c.rms(k.X, k.W, k.RStd, true)
	c.rope(k.X, k.Cos, k.Sin)
	c.that(k.W.Len() == k.Cos.Cols(), "w has %d elements and cos %d columns", k.W.Len(), k.Cos.Cols())
	c.matrix("dy", k.DY, k.X.Rows(), k.X.Cols())
	c.matrix("dx", k.DX, k.X.Rows(), k.X.Cols())
	if k.DW.Valid() {
		c.array("dw", k.DW, tensor.F32, k.W.Len())
	}
	return c.err
}

// Host rotates DY back into DX, and takes the norm's gradient there.
func (k RMSNormRoPEBackward) Host(w gpu.Workers) error {
	if err := (RoPE{Y: k.DX, X: k.DY, Cos: k.Cos, Sin: k.Sin, Inverse: true}).Host(w); err != nil {
		return err
	}
	return RMSNormBackward{DX: k.DX, DY: k.DX, X: k.X, W: k.W, RStd: k.RStd, DW: k.DW}.Host(w)
}
