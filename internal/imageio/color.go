package imageio

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"image"
	"io"

	"github.com/kovidgoyal/imaging/prism/meta"
	"github.com/kovidgoyal/imaging/prism/meta/icc"
)

// maxProfile bounds an embedded ICC profile; large CMYK ones have a few MiB.
const maxProfile = 16 << 20

// toSRGB brings a decoded image to 8-bit sRGB. A profile that is broken, or made
// for another kind of pixels, is ignored, as viewers do: the picture is whole.
func (h Header) toSRGB(r io.ReaderAt, m image.Image) raster {
	if c, ok := h.cicpPipeline(); ok {
		ras := h.rasterOf(m)
		if c != nil {
			ras.img.recolour(ras.img.Pix, 3, c)
		}
		return ras
	}
	p := h.profile(r)
	if p == nil || p.IsSRGB() {
		return h.rasterOf(m)
	}
	pipeline := func(channels int) *icc.Pipeline {
		// relative to the white, blacks matched, out-of-gamut values clipped
		c, err := p.CreateTransformerToSRGB(icc.RelativeColorimetricRenderingIntent, true, channels, true, false, true)
		if err != nil {
			return nil
		}
		return c
	}
	cmyk, isCMYK := m.(*image.CMYK)
	switch space := p.Header.DataColorSpace; {
	case space == icc.ColorSpaceCMYK && isCMYK:
		if c := pipeline(4); c != nil {
			img := New(cmyk.Rect.Dx(), cmyk.Rect.Dy())
			img.recolour(cmyk.Pix, 4, c)
			return raster{img: img}
		}
	case space == icc.ColorSpaceGray && isGray(m):
		ras := h.rasterOf(m)
		if c := pipeline(1); c != nil {
			ras.img.recolour(ras.img.Pix, 3, c)
		}
		return ras
	case space == icc.ColorSpaceRGB && !isCMYK:
		ras := h.rasterOf(m)
		if c := pipeline(3); c != nil {
			ras.img.recolour(ras.img.Pix, 3, c)
		}
		return ras
	}
	return h.rasterOf(m)
}

func isGray(m image.Image) bool {
	switch m.(type) {
	case *image.Gray, *image.Gray16:
		return true
	}
	return false
}

// recolour runs every pixel of src, channels bytes each, through c into m. src
// may be m.Pix. Neighbouring pixels are alike, so each goroutine keeps the
// results of the colours it met last, and the costly pipeline runs once a colour.
func (m *Image) recolour(src []uint8, channels int, c *icc.Pipeline) {
	parallelRows(m.H, 64*m.W, func(y0, y1 int) {
		type entry struct {
			in  [4]uint8
			out [3]uint8
			set bool
		}
		memo := make([]entry, 1<<15)
		var in, out [4]float64
		for i := y0 * m.W; i < y1*m.W; i++ {
			var key [4]uint8
			copy(key[:], src[channels*i:channels*(i+1)])
			e := &memo[(binary.LittleEndian.Uint32(key[:])*2654435761)>>17]
			if !e.set || e.in != key {
				for k, v := range key {
					in[k] = float64(v) / 255
				}
				if channels == 4 {
					c.TransformGeneral(out[:], in[:])
				} else {
					out[0], out[1], out[2] = c.Transform(in[0], in[1], in[2])
				}
				*e = entry{key, [3]uint8{fromUnit(out[0]), fromUnit(out[1]), fromUnit(out[2])}, true}
			}
			copy(m.Pix[3*i:3*i+3], e.out[:])
		}
	})
}

func fromUnit(v float64) uint8 { return uint8(min(max(v, 0), 1)*255 + 0.5) }

// cicpPipeline returns the conversion for colours given by code points (H.273),
// nil where they are sRGB's already; false where the file gives none.
func (h Header) cicpPipeline() (*icc.Pipeline, bool) {
	if h.cicp == nil {
		return nil, false
	}
	c := meta.CodingIndependentCodePoints{
		ColorPrimaries: h.cicp[0], TransferCharacteristics: h.cicp[1],
		MatrixCoefficients: h.cicp[2], VideoFullRange: h.cicp[3], IsSet: true,
	}
	const unspecified, bt709, sRGB = 2, 1, 13
	if c.ColorPrimaries == unspecified {
		if c.TransferCharacteristics == unspecified {
			return nil, false // an ICC profile may say more
		}
		c.ColorPrimaries = bt709
	}
	switch c.TransferCharacteristics {
	case unspecified, bt709, 6, 14, 15: // camera curves: shown with sRGB's, as browsers do
		c.TransferCharacteristics = sRGB
	}
	if c.IsSRGB() {
		return nil, true
	}
	p := c.PipelineToSRGB()
	return p, p != nil
}

// profile reads the embedded ICC profile; nil where there is none that can be used.
func (h Header) profile(r io.ReaderAt) *icc.Profile {
	total := 0
	var parts []io.Reader
	for _, s := range h.icc {
		total += s.n
		parts = append(parts, io.NewSectionReader(r, s.off, int64(s.n)))
	}
	if total == 0 || total > maxProfile {
		return nil
	}
	in := io.MultiReader(parts...)
	if h.iccDeflated {
		z, err := zlib.NewReader(in)
		if err != nil {
			return nil
		}
		defer z.Close()
		in = io.LimitReader(z, maxProfile)
	}
	b, err := io.ReadAll(in)
	if err != nil || checkProfile(b) != nil {
		return nil
	}
	p, err := icc.DecodeProfile(bytes.NewReader(b))
	if err != nil {
		return nil
	}
	return p
}

// checkProfile checks that the tag table of a profile lies inside it, which its
// reader takes on trust.
func checkProfile(b []byte) error {
	const head = 132
	if len(b) < head {
		return ErrTruncated
	}
	n := uint64(binary.BigEndian.Uint32(b[128:]))
	if head+12*n > uint64(len(b)) {
		return fmt.Errorf("profile of %d bytes cannot hold %d tags", len(b), n)
	}
	for t := b[head : head+12*n]; len(t) > 0; t = t[12:] {
		off, size := uint64(binary.BigEndian.Uint32(t[4:])), uint64(binary.BigEndian.Uint32(t[8:]))
		if off < head+12*n || off+size > uint64(len(b)) {
			return fmt.Errorf("profile tag %q lies outside", t[:4])
		}
	}
	return nil
}
