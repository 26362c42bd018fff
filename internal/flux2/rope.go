package flux2

import "math"

// axes is the number of coordinates of a token: time T, row H, column W, and
// the place L in the text.
const axes = 4

// Shape is the shape of a batch: what the sequence and the workspace depend on.
type Shape struct {
	B    int      // items
	H, W int      // grid of image tokens
	L    int      // text tokens, padding included
	Refs [][2]int // grids (h, w) of the reference images, in order
}

// Tokens returns the target image tokens H·W and the reference tokens.
func (s Shape) Tokens() (image, refs int) {
	for _, r := range s.Refs {
		refs += r[0] * r[1]
	}
	return s.H * s.W, refs
}

// Sequence returns S, the tokens that attend to each other: text, image, references.
func (s Shape) Sequence() int {
	image, refs := s.Tokens()
	return s.L + image + refs
}

// refStep is the distance in time between an image and the next reference.
const refStep = 10

// positions returns the coordinates of the whole sequence, text first:
//
//	text token l                     (0, 0, 0, l)
//	image token at row h, column w   (0, h, w, 0), row by row
//	reference image k                (10 + 10·k, h, w, 0)
func (s Shape) positions() [][axes]int {
	ids := make([][axes]int, 0, s.Sequence())
	for l := range s.L {
		ids = append(ids, [axes]int{0, 0, 0, l})
	}
	grid := func(t, h, w int) {
		for i := range h {
			for j := range w {
				ids = append(ids, [axes]int{t, i, j, 0})
			}
		}
	}
	grid(0, s.H, s.W)
	for k, r := range s.Refs {
		grid(refStep*(k+1), r[0], r[1])
	}
	return ids
}

// rope returns the rotation tables of tokens by their coordinates, cos and sin
// [S, HeadDim]. Axis j has d = Axes[j] columns, in pairs; pair i of token t turns by
//
//	angle = ids[t][j] · θ^(−2i/d),  i = 0..d/2−1
//
// computed in float64 and rounded to float32 at the end. Both columns of a pair
// hold its value, and the axes follow each other.
func (c Config) rope(ids [][axes]int) (cos, sin []float32) {
	cos = make([]float32, 0, len(ids)*c.HeadDim)
	sin = make([]float32, 0, len(ids)*c.HeadDim)
	for _, id := range ids {
		for j, d := range c.Axes {
			for i := range d / 2 {
				si, co := math.Sincos(float64(id[j]) * math.Pow(c.Theta, -float64(2*i)/float64(d)))
				cos = append(cos, float32(co), float32(co))
				sin = append(sin, float32(si), float32(si))
			}
		}
	}
	return cos, sin
}
