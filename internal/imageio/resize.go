package imageio

import (
	"image"
	"math"
)

// Filter is a resampling kernel, widened by the scale when an image shrinks
// (antialiasing).
type Filter struct {
	Name    string
	support float64 // the kernel is zero outside (-support, support)
	at      func(x float64) float64
}

// The filters.
var (
	// Bilinear is the triangle 1-|x|.
	Bilinear = Filter{"bilinear", 1, func(x float64) float64 { return max(0, 1-math.Abs(x)) }}
	// Bicubic is Keys' cubic with a = -0.5.
	Bicubic = Filter{"bicubic", 2, keys}
	// Lanczos is sinc(x) sinc(x/3).
	Lanczos = Filter{"lanczos", 3, func(x float64) float64 {
		if x < -3 || x >= 3 {
			return 0
		}
		return sinc(x) * sinc(x/3)
	}}
)

func keys(x float64) float64 {
	const a = -0.5
	switch x = math.Abs(x); {
	case x < 1:
		return ((a+2)*x-(a+3))*x*x + 1
	case x < 2:
		return (((x-5)*x+8)*x - 4) * a
	}
	return 0
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// Resize returns the image at w x h.
func (m *Image) Resize(w, h int, f Filter) *Image {
	return m.resizePart(w, h, image.Rect(0, 0, w, h), f)
}

// Cover scales the image, keeping its aspect, so that it just covers w x h, and
// cuts the middle out: both sides are scaled by max(w/W, h/H) and rounded up.
func (m *Image) Cover(w, h int, f Filter) *Image {
	s := max(float64(w)/float64(m.W), float64(h)/float64(m.H))
	sw, sh := int(math.Ceil(float64(m.W)*s)), int(math.Ceil(float64(m.H)*s))
	x, y := (sw-w)/2, (sh-h)/2
	return m.resizePart(sw, sh, image.Rect(x, y, x+w, y+h), f)
}

// resizePart returns the part of the image scaled to w x h, and works on no
// more than it needs.
//
// This is Pillow's arithmetic: rows first, then columns, each pass with
// coefficients rounded to precision bits and rounding to bytes.
func (m *Image) resizePart(w, h int, part image.Rectangle, f Filter) *Image {
	if w == m.W && h == m.H {
		return m.Crop(part.Min.X, part.Min.Y, part.Dx(), part.Dy())
	}
	across := f.taps(m.W, w, part.Min.X, part.Max.X)
	down := f.taps(m.H, h, part.Min.Y, part.Max.Y)
	first, last := down[0].first, 0 // the rows that the second pass reads
	for _, t := range down {
		last = max(last, t.first+len(t.weights))
	}
	narrow := New(part.Dx(), last-first)
	parallelRows(narrow.H, 3*m.W, func(y0, y1 int) {
		for y := y0; y < y1; y++ {
			resizeRow(narrow.row(y), m.row(first+y), across)
		}
	})
	out := New(part.Dx(), part.Dy())
	parallelRows(out.H, 3*out.W*len(down[0].weights), func(y0, y1 int) {
		sums := make([]int32, 3*out.W)
		for y := y0; y < y1; y++ {
			t := down[y]
			for i := range sums {
				sums[i] = half
			}
			for k, c := range t.weights {
				for i, v := range narrow.row(t.first - first + k) {
					sums[i] += c * int32(v)
				}
			}
			row := out.row(y)
			for i, v := range sums {
				row[i] = clamp8(v >> precision)
			}
		}
	})
	return out
}

// resizeRow filters one row.
func resizeRow(dst, src []uint8, across []tap) {
	for x, t := range across {
		r, g, b := int32(half), int32(half), int32(half)
		in := src[3*t.first:][:3*len(t.weights)]
		for k, c := range t.weights {
			r += c * int32(in[3*k])
			g += c * int32(in[3*k+1])
			b += c * int32(in[3*k+2])
		}
		d := dst[3*x : 3*x+3 : 3*x+3]
		d[0], d[1], d[2] = clamp8(r>>precision), clamp8(g>>precision), clamp8(b>>precision)
	}
}

// Fixed point: 8 bits of a sample, 22 of a coefficient, and 2 spare for the
// sign and for coefficients whose sum of magnitudes is above 1.
const (
	precision = 32 - 8 - 2
	half      = 1 << (precision - 1)
)

// tap is what one output sample is made of: weights for the inputs from first.
type tap struct {
	first   int
	weights []int32
}

// taps returns the taps of output samples [from, to) of n, from an axis of in
// samples.
func (f Filter) taps(in, n, from, to int) []tap {
	scale := float64(in) / float64(n)
	wide := max(scale, 1)
	support := f.support * wide
	taps := make([]tap, 0, to-from)
	w := make([]float64, 0, 2*int(math.Ceil(support))+1)
	for i := from; i < to; i++ {
		centre := (float64(i) + 0.5) * scale
		lo := max(int(centre-support+0.5), 0)
		hi := min(int(centre+support+0.5), in)
		w, sum := w[:0], 0.0
		for x := lo; x < hi; x++ {
			v := f.at((float64(x) - centre + 0.5) / wide)
			w, sum = append(w, v), sum+v
		}
		t := tap{lo, make([]int32, len(w))}
		for k, v := range w {
			t.weights[k] = int32(math.Round(v / sum * (1 << precision)))
		}
		taps = append(taps, t)
	}
	return taps
}
