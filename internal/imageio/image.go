package imageio

// Image is an 8-bit sRGB picture.
type Image struct {
	W, H int
	Pix  []uint8 // RGB, rows from the top, 3*W bytes a row
}

// New returns a black image.
func New(w, h int) *Image { return &Image{W: w, H: h, Pix: make([]uint8, 3*w*h)} }

// row returns row y.
func (m *Image) row(y int) []uint8 { return m.Pix[3*m.W*y : 3*m.W*(y+1)] }

// Crop returns a copy of the w x h pixels whose top left corner is x, y. They
// must lie inside the image.
func (m *Image) Crop(x, y, w, h int) *Image {
	out := New(w, h)
	for i := range h {
		copy(out.row(i), m.row(y + i)[3*x:])
	}
	return out
}

// unit maps a byte to [-1, 1] as (v/255 - 0.5) / 0.5 does in float32.
var unit = func() (t [256]float32) {
	for v := range t {
		t[v] = (float32(v)/255 - 0.5) / 0.5
	}
	return t
}()

// Planar writes the image to dst as float32 planes in [-1, 1]: shape [3, H, W].
func (m *Image) Planar(dst []float32) {
	n := m.W * m.H
	r, g, b := dst[:n], dst[n:2*n], dst[2*n:3*n]
	parallelRows(m.H, 3*m.W, func(y0, y1 int) {
		for i := y0 * m.W; i < y1*m.W; i++ {
			p := m.Pix[3*i : 3*i+3 : 3*i+3]
			r[i], g[i], b[i] = unit[p[0]], unit[p[1]], unit[p[2]]
		}
	})
}

// turned returns the image as shown, from pixels stored under an EXIF
// orientation. Orientation 1 returns m itself.
func (m *Image) turned(orientation int) *Image {
	w, h := m.W, m.H
	// The stored pixel of the shown (x, y) is number first + x*dx + y*dy.
	var first, dx, dy int
	switch orientation {
	case 2: // mirrored left to right
		first, dx, dy = w-1, -1, w
	case 3: // half a turn
		first, dx, dy = w*h-1, -1, -w
	case 4: // mirrored top to bottom
		first, dx, dy = w*(h-1), 1, -w
	case 5: // transposed
		first, dx, dy = 0, w, 1
	case 6: // a quarter clockwise
		first, dx, dy = w*(h-1), -w, 1
	case 7: // transposed over the other diagonal
		first, dx, dy = w*h-1, -w, -1
	case 8: // a quarter anticlockwise
		first, dx, dy = w-1, w, -1
	default:
		return m
	}
	out := New(w, h)
	if orientation >= 5 {
		out = New(h, w)
	}
	parallelRows(out.H, 3*out.W, func(y0, y1 int) {
		for y := y0; y < y1; y++ {
			i, row := 3*(first+y*dy), out.row(y)
			for x := 0; x < len(row); x += 3 {
				copy(row[x:x+3], m.Pix[i:i+3])
				i += 3 * dx
			}
		}
	})
	return out
}
