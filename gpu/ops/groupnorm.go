package ops

import (
	"longship/gpu"
	"longship/gpu/tensor"
)

// GroupNorm brings each group of channels of each image to mean 0 and (biased)
// variance 1, then scales and shifts by channel, and where SiLU is set applies it:
//
//	y = W[c]·(x - mean)·rstd + B[c],   then y·sigmoid(y)
//
// X, Y [B,C,H,W] contiguous, W and B [C] in any float type. Y may be X. Source:
// torch group_norm.
type GroupNorm struct {
	Y, X, W, B tensor.Tensor
	Groups     int
	Eps        float32
	SiLU       bool
}

// Name is "group_norm".
func (GroupNorm) Name() string { return "group_norm" }

// Check demands shapes that fit.
func (k GroupNorm) Check() error {
	var c check
	c.images("x", k.X)
	if c.err != nil {
		return c.err
	}
	c.array("y", k.Y, k.X.DType, k.X.Len())
	c.divides("channels over groups", k.X.Shape[1], k.Groups)
	c.vector("w", k.W, k.X.Shape[1])
	c.vector("b", k.B, k.X.Shape[1])
	return c.err
}

// Host normalises group by group; sums are in float64 and taken by channel.
func (k GroupNorm) Host(w gpu.Workers) error {
	x, y := k.X.Float32s(), k.Y.Float32s()
	weight, bias := vector(k.W), vector(k.B)
	channels := k.X.Shape[1]
	area := k.X.Shape[2] * k.X.Shape[3]
	per := channels / k.Groups
	w.For(k.X.Shape[0]*k.Groups, 1, func(lo, hi int) {
		for g := lo; g < hi; g++ {
			at := g * per * area
			mean, rstd := moments(x[at:at+per*area], k.Eps)
			for c := range per {
				ch := g%k.Groups*per + c
				in, out := x[at+c*area:at+(c+1)*area], y[at+c*area:at+(c+1)*area]
				for j, v := range in {
					v = (v-mean)*rstd*weight[ch] + bias[ch]
					if k.SiLU {
						v *= sigmoid(v)
					}
					out[j] = v
				}
			}
		}
	})
	return nil
}
