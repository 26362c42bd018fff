package imageio

import (
	"bufio"
	"context"
	"fmt"
	"image"
	"image/png"
	"io"

	"github.com/gen2brain/avif"
	"github.com/kovidgoyal/imaging/jpeg"
	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
	"golang.org/x/sync/semaphore"
)

// Decode decodes the image in r, which is size bytes long: the first frame of an
// animation, as shown (orientation applied), in sRGB. An image of more than
// MaxPixels is refused before anything is allocated for it.
func Decode(r io.ReaderAt, size int64, alpha Alpha) (*Image, error) {
	h, err := ReadHeader(r, size)
	if err != nil {
		return nil, err
	}
	n := min(h.decodeBytes(), maxInHand)
	if err := inHand.Acquire(context.Background(), n); err != nil {
		return nil, err
	}
	defer inHand.Release(n)
	ras, err := h.decode(r, size)
	if err != nil {
		return nil, fmt.Errorf("decode %v: %w", h.Format, err)
	}
	w, hh := h.stored()
	if ras.img.W != w || ras.img.H != hh {
		return nil, fmt.Errorf("decode %v: %dx%d pixels, but its header says %dx%d", h.Format, ras.img.W, ras.img.H, w, hh)
	}
	ras.flatten(alpha)
	return ras.img.turned(h.Orientation), nil
}

// inHand bounds the memory of all decoding in the process: small images are
// decoded side by side, the largest one after the other.
var inHand = semaphore.NewWeighted(maxInHand)

const maxInHand = 1 << 30 // bytes

// decodeBytes is an upper bound of the memory that decoding takes, in bytes.
func (h Header) decodeBytes() int64 {
	perPixel := int64(4 + 4 + 3) // the decoder's image, RGB and alpha, the turned copy
	switch {
	case h.progressive: // and three int32 coefficients
		perPixel += 12
	case h.Format == AVIF: // and the decoder's planes and two copies of its RGBA
		perPixel += 12
	case h.deep:
		perPixel += 4
	}
	return perPixel * int64(h.Width) * int64(h.Height)
}

// endReader notes that more was asked for than there is: decoders have words of
// their own for a file that ends inside the picture.
type endReader struct {
	io.Reader
	passed bool
}

func (r *endReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.passed = r.passed || n == 0 && err == io.EOF
	return n, err
}

// decode runs the format's decoder and colour conversion. The decoders are
// other people's code at foreign bytes, so a panic is an error of the file.
func (h Header) decode(r io.ReaderAt, size int64) (ras raster, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("broken file: %v", p)
		}
	}()
	section := io.NewSectionReader(r, 0, size)
	whole := &endReader{Reader: section}
	in := bufio.NewReaderSize(whole, 64<<10)
	var m image.Image
	switch h.Format {
	case PNG:
		m, err = png.Decode(in)
	case JPEG:
		m, err = jpeg.Decode(in)
	case WebP:
		m, err = h.decodeWebP(r, in)
	case AVIF:
		m, err = avif.Decode(in)
	case GIF:
		m, err = h.decodeGIF(r, size)
	case BMP:
		m, err = bmp.Decode(in)
	case TIFF:
		m, err = tiff.Decode(section)
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF || err != nil && whole.passed {
		err = ErrTruncated
	}
	if err != nil {
		return raster{}, err
	}
	ras = h.toSRGB(r, m)
	if h.inverted {
		for i, v := range ras.img.Pix {
			ras.img.Pix[i] = 255 - v
		}
	}
	if h.frame.n == 0 {
		return ras, nil
	}
	w, hh := h.stored()
	return ras.onCanvas(w, hh, h.frameAt, [3]uint8{}, 0), nil
}
