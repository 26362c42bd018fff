package imageio

import (
	"errors"
	"fmt"
	"image"
	"io"
)

// MaxPixels is the largest image that is read: Pillow's own limit, at which it
// takes a file for a decompression bomb.
const MaxPixels = 178_956_970

// Errors that callers may want to tell apart. All others say what is wrong in a
// format's own terms.
var (
	ErrNotImage = errors.New("not an image of a known format (PNG, JPEG, WebP, AVIF, GIF, BMP, TIFF)")
	ErrEmpty    = errors.New("the file is empty")
	ErrTooLarge = errors.New("too many pixels")
	// ErrTruncated is a file that ends before its header does.
	ErrTruncated = errors.New("the file is truncated")
)

// Header is what a file says of its image before any pixel is decoded.
type Header struct {
	Format        Format
	Width, Height int // of the image as shown: the orientation is applied
	Orientation   int // EXIF 1..8: what turns the stored pixels into the shown ones

	deep        bool     // more than 8 bits a channel
	progressive bool     // a JPEG of which all coefficients are held before a pixel is made
	inverted    bool     // a fax TIFF whose decoder takes black for white
	icc         []span   // an embedded ICC profile, in pieces
	iccDeflated bool     // the pieces are one zlib stream (PNG)
	cicp        *[4]byte // colour code points: primaries, transfer, matrix, full range
	gif         gifFrame
	frame       span // of the first frame in an animated WebP
	frameAt     image.Point
}

// span is a run of bytes in the file.
type span struct {
	off int64
	n   int
}

// ReadHeader reads the size and orientation of the image in r, which is size
// bytes long. It reads a few hundred bytes, wherever in the file they are.
func ReadHeader(r io.ReaderAt, size int64) (Header, error) {
	if size == 0 {
		return Header{}, ErrEmpty
	}
	s := &source{r: r, size: size}
	first, err := s.at(0, int(min(size, sniffLen)))
	if err != nil {
		return Header{}, err
	}
	h := Header{Format: sniff(first), Orientation: 1}
	switch h.Format {
	case PNG:
		err = h.readPNG(s)
	case JPEG:
		err = h.readJPEG(s)
	case WebP:
		err = h.readWebP(s)
	case AVIF:
		err = h.readAVIF(s)
	case GIF:
		err = h.readGIF(s)
	case BMP:
		err = h.readBMP(s)
	case TIFF:
		err = h.readTIFF(s)
	default:
		return Header{}, ErrNotImage
	}
	if err != nil {
		return Header{}, fmt.Errorf("%v header: %w", h.Format, err)
	}
	if h.Width <= 0 || h.Height <= 0 {
		return Header{}, fmt.Errorf("%v header: size is %dx%d", h.Format, h.Width, h.Height)
	}
	if int64(h.Width)*int64(h.Height) > MaxPixels {
		return Header{}, fmt.Errorf("%w: %dx%d, at most %d megapixels are read", ErrTooLarge, h.Width, h.Height, MaxPixels/1_000_000)
	}
	if h.Orientation >= 5 {
		h.Width, h.Height = h.Height, h.Width
	}
	return h, nil
}

// stored is the size of the pixels in the file, before the orientation.
func (h Header) stored() (w, hh int) {
	if h.Orientation >= 5 {
		return h.Height, h.Width
	}
	return h.Width, h.Height
}

// source reads small pieces of a file through a window, so that neighbouring
// reads cost one system call.
type source struct {
	r     io.ReaderAt
	size  int64
	win   []byte
	off   int64 // of win
	reads int
}

const (
	windowLen = 512
	// maxReads ends the walk through a file made of ever more empty parts. A
	// PNG of MaxPixels in pieces of 8 KiB has a quarter of it.
	maxReads = 1 << 18
)

// at returns n bytes at off; they are valid until the next call. Reading past
// the end is ErrTruncated.
func (s *source) at(off int64, n int) ([]byte, error) {
	if off < 0 || n < 0 || off > s.size-int64(n) {
		return nil, ErrTruncated
	}
	if s.reads++; s.reads > maxReads {
		return nil, errors.New("made of too many parts")
	}
	if off < s.off || off+int64(n) > s.off+int64(len(s.win)) {
		want := min(max(int64(n), windowLen), s.size-off)
		if int64(cap(s.win)) < want {
			s.win = make([]byte, want)
		}
		s.win, s.off = s.win[:want], off
		if m, err := s.r.ReadAt(s.win, off); int64(m) < want {
			s.win = s.win[:0]
			if err == io.EOF {
				err = ErrTruncated // the file has shrunk since its size was taken
			}
			return nil, err
		}
	}
	i := int(off - s.off)
	return s.win[i : i+n : i+n], nil
}
