package imageio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/gif"
	"io"

	"golang.org/x/image/webp"
)

// gifFrame is what is needed of the first frame's graphic control extension.
type gifFrame struct {
	control     int64 // where its flags byte lies; 0 where there is none
	transparent int   // the transparent colour's number; -1 where there is none
}

// readGIF reads the logical screen, which is the canvas that frames lie on, and
// the blocks before the first frame.
func (h *Header) readGIF(s *source) error {
	b, err := s.at(6, 7)
	if err != nil {
		return err
	}
	h.Width, h.Height = int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:]))
	off := int64(13)
	if b[4]&0x80 != 0 { // a global palette
		off += 3 << (b[4]&7 + 1)
	}
	h.gif.transparent = -1
	for {
		if b, err = s.at(off, 2); err != nil {
			return err
		}
		switch b[0] {
		case ',': // an image
			return nil
		case '!': // an extension: its label, then sub-blocks up to an empty one
		default:
			return errors.New("no frame")
		}
		isControl := b[1] == 0xf9
		off += 2
		for {
			if b, err = s.at(off, 1); err != nil {
				return err
			}
			n := int64(b[0])
			if isControl && n == 4 {
				if b, err = s.at(off+1, 4); err != nil {
					return err
				}
				if h.gif.control = off + 1; b[0]&1 != 0 {
					h.gif.transparent = int(b[3])
				}
			}
			off += 1 + n
			if n == 0 {
				break
			}
		}
	}
}

// decodeGIF decodes the first frame. Go's decoder forgets the colour under
// transparent pixels, so the flag that names it is cleared on the way.
func (h Header) decodeGIF(r io.ReaderAt, size int64) (image.Image, error) {
	var in io.Reader = io.NewSectionReader(r, 0, size)
	if h.gif.transparent >= 0 {
		at := h.gif.control
		var flags [1]byte
		if _, err := r.ReadAt(flags[:], at); err != nil {
			return nil, err
		}
		in = io.MultiReader(
			io.NewSectionReader(r, 0, at),
			bytes.NewReader([]byte{flags[0] &^ 1}),
			io.NewSectionReader(r, at+1, size-at-1),
		)
	}
	return gif.Decode(in)
}

// decodeWebP decodes a still WebP, or the first frame of an animation: a frame
// holds the chunks of a still file and lacks only its header.
func (h Header) decodeWebP(r io.ReaderAt, in io.Reader) (image.Image, error) {
	if h.frame.n == 0 {
		return webp.Decode(in)
	}
	var head [frameHeadLen]byte
	if _, err := r.ReadAt(head[:], h.frame.off); err != nil {
		return nil, err
	}
	chunks := h.frame.n - frameHeadLen
	still := []byte("RIFF\x00\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x00\x00\x00\x00")
	binary.LittleEndian.PutUint32(still[4:], uint32(22+chunks))
	var first [4]byte
	if _, err := r.ReadAt(first[:], h.frame.off+frameHeadLen); err != nil {
		return nil, err
	}
	if string(first[:]) == "ALPH" {
		still[20] = 1 << 4 // says that alpha follows
	}
	still = append(still, head[6:12]...) // width and height
	return webp.Decode(io.MultiReader(bytes.NewReader(still), io.NewSectionReader(r, h.frame.off+frameHeadLen, int64(chunks))))
}

// frameHeadLen is the length of what an ANMF chunk has before its sub-chunks:
// x/2, y/2, width-1, height-1, duration in 3 bytes each, and flags.
const frameHeadLen = 16

// readFrame notes an animated WebP's first frame.
func (h *Header) readFrame(s *source, off, n int64) error {
	if h.frame.n != 0 {
		return nil
	}
	b, err := s.at(off, frameHeadLen)
	if err != nil {
		return err
	}
	if n <= frameHeadLen || n > s.size-off {
		return ErrTruncated
	}
	h.frame, h.frameAt = span{off, int(n)}, image.Pt(2*uint24(b), 2*uint24(b[3:]))
	return nil
}

// onCanvas lays a frame on a canvas of one colour.
func (r raster) onCanvas(w, h int, at image.Point, ground [3]uint8, alpha uint8) raster {
	if at == (image.Point{}) && r.img.W == w && r.img.H == h {
		return r
	}
	out := raster{New(w, h), make([]uint8, w*h)}
	for i := range out.alpha {
		copy(out.img.Pix[3*i:3*i+3], ground[:])
		out.alpha[i] = alpha
	}
	inside := image.Rect(0, 0, r.img.W, r.img.H).Add(at).Intersect(image.Rect(0, 0, w, h))
	for y := inside.Min.Y; y < inside.Max.Y; y++ {
		from := (y-at.Y)*r.img.W + inside.Min.X - at.X
		to := y*w + inside.Min.X
		n := inside.Dx()
		copy(out.img.Pix[3*to:3*(to+n)], r.img.Pix[3*from:])
		if r.alpha != nil {
			copy(out.alpha[to:to+n], r.alpha[from:])
			continue
		}
		for i := range n {
			out.alpha[to+i] = 255
		}
	}
	return out
}
