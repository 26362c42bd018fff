package ops

import (
	"longship/gpu"
	"longship/gpu/tensor"
)

// Upsample2x repeats every pixel 2 x 2 times (nearest): X [B,C,H,W], Y [B,C,2H,2W].
type Upsample2x struct{ Y, X tensor.Tensor }

// Name is "upsample2x".
func (Upsample2x) Name() string { return "upsample2x" }

// Check demands shapes that fit.
func (k Upsample2x) Check() error {
	var c check
	c.images("x", k.X)
	c.images("y", k.Y)
	if c.err == nil {
		x, y := k.X.Shape, k.Y.Shape
		c.that(x[0] == y[0] && x[1] == y[1] && 2*x[2] == y[2] && 2*x[3] == y[3], "y is %v, want twice x %v", y, x)
	}
	return c.err
}

// Host works line by line.
func (k Upsample2x) Host(w gpu.Workers) error {
	width := k.X.Shape[3]
	x, y := open(k.X.View(k.X.Rows(), width)), open(k.Y.View(k.X.Rows(), 4*width))
	eachRow(w, x.n, y.cols, func(i int) {
		out := y.row(i) // both lines that come from line i
		for j, v := range x.row(i) {
			out[2*j], out[2*j+1] = v, v
		}
		copy(out[2*width:], out[:2*width])
	})
	return nil
}

// Patchify folds 2 x 2 pixels into channels, FLUX.2's latent layout:
//
//	Y[b, 4c + 2p + q, i, j] = X[b, c, 2i+p, 2j+q]
//
// X [B,C,2h,2w], Y [B,4C,h,w]. With Inverse, X is the folded one and Y the image.
type Patchify struct {
	Y, X    tensor.Tensor
	Inverse bool
}

// Name is "patchify".
func (Patchify) Name() string { return "patchify" }

// Check demands shapes that fit.
func (k Patchify) Check() error {
	var c check
	c.images("x", k.X)
	c.images("y", k.Y)
	if c.err == nil {
		image, folded := k.X.Shape, k.Y.Shape
		if k.Inverse {
			image, folded = folded, image
		}
		c.that(image[0] == folded[0] && 4*image[1] == folded[1] && image[2] == 2*folded[2] && image[3] == 2*folded[3],
			"%v cannot be folded to %v", image, folded)
	}
	return c.err
}

// Host works by channel of the image.
func (k Patchify) Host(w gpu.Workers) error {
	x, y := k.X.Float32s(), k.Y.Float32s()
	s := k.X.Shape
	if k.Inverse {
		s = k.Y.Shape
	}
	h, width := s[2]/2, s[3]/2
	area := 4 * h * width
	eachRow(w, s[0]*s[1], area, func(i int) {
		for p := range 2 {
			for q := range 2 {
				at := i*area + (2*p+q)*h*width
				for r := range h {
					line := i*area + (2*r+p)*2*width + q
					for j := range width {
						if k.Inverse {
							y[line+2*j] = x[at+r*width+j]
						} else {
							y[at+r*width+j] = x[line+2*j]
						}
					}
				}
			}
		}
	})
	return nil
}

// ChannelNorm is Y = (X - Mean[c]) / Std[c], or with Inverse Y = X·Std[c] +
// Mean[c]: the latents' normalisation. X, Y [B,C,H,W], Mean and Std [C] F32. Y may be X.
type ChannelNorm struct {
	Y, X, Mean, Std tensor.Tensor
	Inverse         bool
}

// Name is "channel_norm".
func (ChannelNorm) Name() string { return "channel_norm" }

// Check demands shapes that fit.
func (k ChannelNorm) Check() error {
	var c check
	c.images("x", k.X)
	if c.err != nil {
		return c.err
	}
	c.array("y", k.Y, k.X.DType, k.X.Len())
	c.array("mean", k.Mean, tensor.F32, k.X.Shape[1])
	c.array("std", k.Std, tensor.F32, k.X.Shape[1])
	return c.err
}

// Host works by channel.
func (k ChannelNorm) Host(w gpu.Workers) error {
	s := k.X.Shape
	planes, area := s[0]*s[1], s[2]*s[3]
	x, y := open(k.X.View(planes, area)), open(k.Y.View(planes, area))
	mean, std := k.Mean.Float32s(), k.Std.Float32s()
	eachRow(w, planes, area, func(i int) {
		mu, sd := mean[i%s[1]], std[i%s[1]]
		in, out := x.row(i), y.row(i)
		for j, v := range in {
			if k.Inverse {
				out[j] = v*sd + mu
			} else {
				out[j] = (v - mu) / sd
			}
		}
	})
	return nil
}

// Transpose swaps the rows and columns of each sample's matrix: X [Batch·R, C],
// Y [Batch·C, R]. It packs latents into tokens ([C, h·w] to [h·w, C]) and back.
type Transpose struct {
	Y, X  tensor.Tensor
	Batch int
}

// Name is "transpose".
func (Transpose) Name() string { return "transpose" }

// Check demands shapes that fit.
func (k Transpose) Check() error {
	var c check
	c.divides("rows of x over samples", k.X.Rows(), k.Batch)
	if c.err != nil {
		return c.err
	}
	c.matrix("x", k.X, k.X.Rows(), k.X.Cols())
	c.matrix("y", k.Y, k.Batch*k.X.Cols(), k.X.Rows()/k.Batch)
	return c.err
}

// Host writes line by line, in squares that fit the cache.
func (k Transpose) Host(w gpu.Workers) error {
	const square = 32
	x, y := open(k.X), open(k.Y)
	r := x.n / k.Batch
	w.For(y.n, square, func(lo, hi int) {
		for c := lo; c < hi; c++ {
			b, col := c/x.cols, c%x.cols
			out := y.row(c)
			for i := range out {
				out[i] = x.data[(b*r+i)*x.stride+col]
			}
		}
	})
	return nil
}
