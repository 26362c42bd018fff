package imageio

import "math"

// Reference images are not bucketed: they keep their size unless they are above
// an area, and lose what does not fill the grid.

// ReferenceArea is the largest area of a reference image, in pixels.
const ReferenceArea = 1024 * 1024

// referenceGrid is what both sides of a reference image are multiples of.
const referenceGrid = 16

// ReferenceSize returns the size that Reference gives an image of w x h.
func ReferenceSize(w, h int) (int, int) {
	w, h = shrunk(w, h)
	return w / referenceGrid * referenceGrid, h / referenceGrid * referenceGrid
}

// shrunk is w x h brought down to ReferenceArea, sides rounded down.
func shrunk(w, h int) (int, int) {
	if w*h <= ReferenceArea {
		return w, h
	}
	s := math.Sqrt(ReferenceArea / (float64(w) * float64(h)))
	return int(float64(w) * s), int(float64(h) * s)
}

// Reference returns the image as a reference image: brought down to
// ReferenceArea where it is larger, then its middle, both sides multiples of 16.
func (m *Image) Reference(f Filter) *Image {
	w, h := shrunk(m.W, m.H)
	cw, ch := ReferenceSize(m.W, m.H)
	return m.Resize(w, h, f).Crop((w-cw)/2, (h-ch)/2, cw, ch)
}
