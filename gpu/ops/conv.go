package ops

import (
	"longship/gpu"
	"longship/gpu/blas"
	"longship/gpu/tensor"
)

// Conv2D is the cross-correlation of images with K x K kernels plus Bias:
//
//	Y[b,o,i,j] = Bias[o] + Σ_c,p,q W[o,c,p,q] · X[b,c, i·Stride+p-Pad, j·Stride+q-Pad]
//
// X [B,C,H,W], W [O,C,K,K] F32, Bias [O] in any float type (may be absent),
// Y [B,O,H',W']: NCHW, contiguous, X and Y of one type. Outside the image X is 0: Pad rows and columns
// before it, PadEnd after it, H' = (H + Pad + PadEnd - K)/Stride + 1. The VAE's
// downsampling is Stride 2, Pad 0, PadEnd 1. On the host it is im2col and a
// Gemm, a strip of the output at a time.
type Conv2D struct {
	Y, X, W, Bias       tensor.Tensor
	Stride, Pad, PadEnd int
}

// Name is "conv2d".
func (Conv2D) Name() string { return "conv2d" }

// Check demands shapes that fit.
func (k Conv2D) Check() error {
	var c check
	c.images("x", k.X)
	c.images("y", k.Y)
	c.that(len(k.W.Shape) == 4 && k.W.DType == tensor.F32 && k.W.Contiguous(), "w is %s %v, want f32 [out, in, k, k]", k.W.DType, k.W.Shape)
	c.that(k.Stride > 0, "stride is %d", k.Stride)
	if c.err != nil {
		return c.err
	}
	x, y, f := k.X.Shape, k.Y.Shape, k.W.Shape
	c.that(f[1] == x[1] && f[0] == y[1] && y[0] == x[0], "x %v, w %v and y %v do not fit", x, f, y)
	for d := 2; d < 4; d++ {
		want := (x[d]+k.Pad+k.PadEnd-f[d])/k.Stride + 1
		c.that(y[d] == want, "y is %v and x %v, want %d in dimension %d", y, x, want, d)
	}
	if k.Bias.Valid() {
		c.vector("bias", k.Bias, f[0])
	}
	return c.err
}

// images demands a contiguous [B,C,H,W] tensor: float32, or bfloat16 for devices
// that have it.
func (c *check) images(name string, t tensor.Tensor) {
	c.that(len(t.Shape) == 4 && (t.DType == tensor.F32 || t.DType == tensor.BF16) && t.Contiguous(),
		"%s is %s %v, want contiguous f32 [b, c, h, w]", name, t.DType, t.Shape)
}

// Cost is 2·B·O·H'·W'·C·K·K.
func (k Conv2D) Cost() gpu.Cost {
	return gpu.Cost{FLOPs: 2 * int64(k.Y.Len()) * int64(k.W.Len()/k.W.Shape[0]), Bytes: k.X.Bytes() + k.Y.Bytes() + k.W.Bytes()}
}

// Host shares out strips of output positions.
func (k Conv2D) Host(w gpu.Workers) error {
	x, y, filter := k.X.Float32s(), k.Y.Float32s(), k.W.Float32s()
	var bias []float32
	if k.Bias.Valid() {
		bias = vector(k.Bias)
	}
	xs, ys := k.X.Shape, k.Y.Shape
	depth, area := k.W.Len()/ys[1], ys[2]*ys[3]
	strip := max(16, min((area+15)/16, (1<<18)/depth)) // at most 1 MiB of patches a worker, and work for 16
	strips := (area + strip - 1) / strip
	weights := blas.Matrix{Data: filter, Rows: ys[1], Cols: depth, Stride: depth}
	w.For(ys[0]*strips, 1, func(lo, hi int) {
		patches := make([]float32, strip*depth)
		for t := lo; t < hi; t++ {
			b, p0 := t/strips, t%strips*strip
			p1 := min(p0+strip, area)
			k.gather(patches, x[b*xs[1]*xs[2]*xs[3]:], p0, p1)
			cols := blas.Matrix{Data: patches, Rows: p1 - p0, Cols: depth, Stride: depth}
			out := blas.Matrix{Data: y[b*ys[1]*area+p0:], Rows: ys[1], Cols: p1 - p0, Stride: area}
			var beta float32
			if bias != nil {
				beta = 1
				for o, v := range bias {
					row := out.Data[o*area : o*area+out.Cols]
					for i := range row {
						row[i] = v
					}
				}
			}
			blas.Gemm(blas.Serial{}, 1, weights, cols.T(), beta, out)
		}
	})
	return nil
}

// gather writes the patches of x under output positions [p0,p1), a row each.
func (k Conv2D) gather(dst, x []float32, p0, p1 int) {
	channels, h, width := k.X.Shape[1], k.X.Shape[2], k.X.Shape[3]
	kh, kw, across := k.W.Shape[2], k.W.Shape[3], k.Y.Shape[3]
	at := 0
	for p := p0; p < p1; p++ {
		top, left := p/across*k.Stride-k.Pad, p%across*k.Stride-k.Pad
		for c := range channels {
			plane := x[c*h*width : (c+1)*h*width]
			for i := top; i < top+kh; i++ {
				line := dst[at : at+kw]
				at += kw
				switch {
				case i < 0 || i >= h:
					clear(line)
				case left >= 0 && left+kw <= width:
					copy(line, plane[i*width+left:])
				default:
					for q := range line {
						line[q] = 0
						if j := left + q; j >= 0 && j < width {
							line[q] = plane[i*width+j]
						}
					}
				}
			}
		}
	}
}
