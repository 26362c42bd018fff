package imageio

import (
	"fmt"
	"image"
	"image/color"

	"github.com/kovidgoyal/imaging/nrgb"
)

// Alpha says what becomes of transparency.
type Alpha string

// The ways to lose an alpha channel.
const (
	AlphaDrop  Alpha = "drop"  // the colours as stored, as Pillow's convert("RGB")
	AlphaWhite Alpha = "white" // laid over white
	AlphaBlack Alpha = "black" // laid over black
)

// ParseAlpha checks a name of an Alpha.
func ParseAlpha(s string) (Alpha, error) {
	switch a := Alpha(s); a {
	case AlphaDrop, AlphaWhite, AlphaBlack:
		return a, nil
	}
	return "", fmt.Errorf("%q is not drop, white or black", s)
}

// raster is a decoded image before its alpha is lost; the colours are not
// multiplied by it. A nil alpha is opaque.
type raster struct {
	img   *Image
	alpha []uint8
}

// flatten loses the alpha channel.
func (r *raster) flatten(a Alpha) {
	if r.alpha == nil || a == AlphaDrop {
		return
	}
	ground := uint32(0)
	if a == AlphaWhite {
		ground = 255
	}
	parallelRows(r.img.H, 3*r.img.W, func(y0, y1 int) {
		for i := 3 * y0 * r.img.W; i < 3*y1*r.img.W; i++ {
			o := uint32(r.alpha[i/3])
			r.img.Pix[i] = div255(uint32(r.img.Pix[i])*o + ground*(255-o))
		}
	})
	r.alpha = nil
}

// div255 is v/255 rounded, for v up to 255*255.
func div255(v uint32) uint8 {
	v += 128
	return uint8((v + v>>8) >> 8)
}

// rasterOf converts a decoder's image to RGB and alpha. Channels of 16 bits keep
// their upper 8.
func (h Header) rasterOf(m image.Image) raster {
	switch m := m.(type) {
	case *image.YCbCr:
		if h.Format == WebP {
			return raster{img: decodeYCC(m, webpYCC)}
		}
		return raster{img: decodeYCC(m, jpegYCC)}
	case *image.NYCbCrA:
		return raster{decodeYCC(&m.YCbCr, webpYCC), plane(m.A, m.AStride, m.Rect)}
	case *image.Gray:
		return raster{img: eachPixel(m.Rect, m.Pix, m.Stride, 1, func(d, s []uint8) { d[0], d[1], d[2] = s[0], s[0], s[0] })}
	case *image.Gray16:
		return raster{img: eachPixel(m.Rect, m.Pix, m.Stride, 2, func(d, s []uint8) { d[0], d[1], d[2] = s[0], s[0], s[0] })}
	case *nrgb.Image:
		return raster{img: eachPixel(m.Rect, m.Pix, m.Stride, 3, func(d, s []uint8) { copy(d, s) })}
	case *image.NRGBA:
		return raster{
			eachPixel(m.Rect, m.Pix, m.Stride, 4, func(d, s []uint8) { copy(d, s) }),
			channel(m.Rect, m.Pix, m.Stride, 4, 3),
		}
	case *image.NRGBA64:
		return raster{
			eachPixel(m.Rect, m.Pix, m.Stride, 8, func(d, s []uint8) { d[0], d[1], d[2] = s[0], s[2], s[4] }),
			channel(m.Rect, m.Pix, m.Stride, 8, 6),
		}
	case *image.RGBA:
		return raster{
			eachPixel(m.Rect, m.Pix, m.Stride, 4, func(d, s []uint8) { unmultiply(d, s[0], s[1], s[2], s[3]) }),
			channel(m.Rect, m.Pix, m.Stride, 4, 3),
		}
	case *image.RGBA64:
		return raster{
			eachPixel(m.Rect, m.Pix, m.Stride, 8, func(d, s []uint8) { unmultiply(d, s[0], s[2], s[4], s[6]) }),
			channel(m.Rect, m.Pix, m.Stride, 8, 6),
		}
	case *image.CMYK:
		return raster{img: eachPixel(m.Rect, m.Pix, m.Stride, 4, cmykToRGB)}
	case *image.Paletted:
		return h.rasterOfPaletted(m)
	}
	panic(fmt.Sprintf("pixels of type %T", m)) // Decode makes it an error of the file
}

// eachPixel makes an image from pixels of n bytes.
func eachPixel(b image.Rectangle, pix []uint8, stride, n int, f func(dst, src []uint8)) *Image {
	out := New(b.Dx(), b.Dy())
	parallelRows(out.H, 3*out.W, func(y0, y1 int) {
		for y := y0; y < y1; y++ {
			src, dst := pix[y*stride:], out.row(y)
			for x := range out.W {
				f(dst[3*x:3*x+3:3*x+3], src[n*x:n*x+n:n*x+n])
			}
		}
	})
	return out
}

// channel takes byte k of pixels of n bytes; nil where all of it is 255.
func channel(b image.Rectangle, pix []uint8, stride, n, k int) []uint8 {
	out, opaque := make([]uint8, 0, b.Dx()*b.Dy()), true
	for y := range b.Dy() {
		row := pix[y*stride:]
		for x := range b.Dx() {
			a := row[n*x+k]
			opaque = opaque && a == 255
			out = append(out, a)
		}
	}
	if opaque {
		return nil
	}
	return out
}

// plane copies a plane of bytes without its stride.
func plane(pix []uint8, stride int, b image.Rectangle) []uint8 {
	out := make([]uint8, 0, b.Dx()*b.Dy())
	for y := range b.Dy() {
		out = append(out, pix[y*stride:][:b.Dx()]...)
	}
	return out
}

// unmultiply divides colours by their alpha, rounding down as Pillow does.
func unmultiply(d []uint8, r, g, b, a uint8) {
	if a == 255 || a == 0 {
		d[0], d[1], d[2] = r, g, b
		return
	}
	for i, v := range [3]uint8{r, g, b} {
		d[i] = uint8(min(255*uint32(v)/uint32(a), 255))
	}
}

// cmykToRGB is Pillow's conversion where there is no profile: R = (1-C)(1-K).
func cmykToRGB(d, s []uint8) {
	white := uint32(255 - s[3])
	for i := range d {
		d[i] = uint8(white) - div255(uint32(s[i])*white)
	}
}

// rasterOfPaletted looks colours up. A GIF's first frame may cover a part of the
// canvas; the rest is the transparent colour, or colour 0.
func (h Header) rasterOfPaletted(m *image.Paletted) raster {
	var colours [256][3]uint8
	var alphas [256]uint8
	for i, c := range m.Palette {
		n := color.NRGBAModel.Convert(c).(color.NRGBA)
		colours[i], alphas[i] = [3]uint8{n.R, n.G, n.B}, n.A
	}
	ground := 0
	if h.Format == GIF && h.gif.transparent >= 0 {
		ground = h.gif.transparent
		alphas[ground] = 0
	}
	index := plane(m.Pix, m.Stride, m.Rect)
	out := raster{New(m.Rect.Dx(), m.Rect.Dy()), make([]uint8, len(index))}
	opaque := true
	for i, v := range index {
		copy(out.img.Pix[3*i:3*i+3], colours[v][:])
		out.alpha[i] = alphas[v]
		opaque = opaque && alphas[v] == 255
	}
	if opaque {
		out.alpha = nil
	}
	if h.Format == GIF {
		w, hh := h.stored()
		return out.onCanvas(w, hh, m.Rect.Min, colours[ground], alphas[ground])
	}
	return out
}
