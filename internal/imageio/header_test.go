package imageio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// pngHeader is a PNG that says a size and has no pixels.
func pngHeader(w, h uint32) []byte {
	b := binary.BigEndian.AppendUint32([]byte("IHDR"), w)
	b = binary.BigEndian.AppendUint32(b, h)
	b = append(b, 8, 2, 0, 0, 0)
	return append([]byte("\x89PNG\r\n\x1a\n"), pngChunk(b)...)
}

// pngChunk frames a chunk that begins with its type.
func pngChunk(b []byte) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(b)-4))
	return binary.BigEndian.AppendUint32(append(out, b...), crc32.ChecksumIEEE(b))
}

func TestReadHeaderRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		file []byte
		want error // nil: any
		says string
	}{
		"nothing":          {nil, ErrEmpty, ""},
		"text":             {[]byte("not an image, but long enough to be looked at"), ErrNotImage, ""},
		"a video":          {[]byte("\x00\x00\x00\x20ftypisom\x00\x00\x02\x00isomiso2avc1mp41"), ErrNotImage, ""},
		"a bomb":           {pngHeader(1<<20, 1<<20), ErrTooLarge, "1048576x1048576"},
		"just above":       {pngHeader(MaxPixels/2+1, 2), ErrTooLarge, ""},
		"no width":         {pngHeader(0, 10), nil, "0x10"},
		"a negative width": {pngHeader(1<<31, 10), nil, "2^31"},
		"two bytes":        {[]byte("\xff\xd8"), ErrNotImage, ""},
		"a cut JPEG":       {[]byte("\xff\xd8\xff\xe0\x00\x10JFIF"), ErrTruncated, ""},
		"a JPEG of zeros":  {append([]byte("\xff\xd8\xff\xe0\x00\x02"), make([]byte, 64)...), nil, "marker"},
		"a short segment":  {append([]byte("\xff\xd8\xff\xe0\x00\x01"), make([]byte, 64)...), nil, "shorter"},
		"a TIFF elsewhere": {[]byte("II*\x00\xff\xff\xff\x7f"), ErrTruncated, ""},
		"an empty WebP":    {[]byte("RIFF\x04\x00\x00\x00WEBP"), ErrTruncated, ""},
		"a GIF of nothing": {[]byte("GIF89a\x01\x00\x01\x00\x00\x00\x00;;"), nil, "no frame"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadHeader(bytes.NewReader(c.file), int64(len(c.file)))
			if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error is %v, want %v saying %q", err, c.want, c.says)
			}
		})
	}
}

func TestReadHeaderTakesOddSizes(t *testing.T) {
	for _, size := range [][2]uint32{{20000, 10}, {1, 1}, {MaxPixels / 2, 2}} {
		file := pngHeader(size[0], size[1])
		h, err := ReadHeader(bytes.NewReader(file), int64(len(file)))
		if err != nil || h.Width != int(size[0]) || h.Height != int(size[1]) {
			t.Errorf("%v: read %dx%d, %v", size, h.Width, h.Height, err)
		}
	}
}

// TestDecodeRefusesBeforeAllocating: a bomb costs nothing.
func TestDecodeRefusesBeforeAllocating(t *testing.T) {
	file := pngHeader(60000, 60000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Decode(bytes.NewReader(file), int64(len(file)), AlphaDrop); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("error is %v", err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("allocated %d bytes", n)
	}
}

// zeros is a file of zero bytes behind a beginning.
type zeros struct{ begin []byte }

func (z zeros) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(z.begin)) {
		copy(p, z.begin[off:])
	}
	return len(p), nil
}

// TestReadHeaderEnds: a sparse file of a terabyte is not walked to its end.
func TestReadHeaderEnds(t *testing.T) {
	for name, begin := range map[string]string{
		"PNG":  string(pngHeader(8, 8)),
		"WebP": "RIFF\x00\x00\x00\x00WEBP",
		"GIF":  "GIF89a\x01\x00\x01\x00\x00\x00\x00!\x00",
		"AVIF": "\x00\x00\x00\x18ftypavif\x00\x00\x00\x00avifmif1",
	} {
		t.Run(name, func(t *testing.T) {
			ReadHeader(zeros{[]byte(begin)}, 1<<40) // must return
		})
	}
}

// counting counts how often and how much is read.
type counting struct {
	io.ReaderAt
	reads, bytes int
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.ReaderAt.ReadAt(p, off)
}

func TestReadHeaderIsCheap(t *testing.T) {
	files, err := filepath.Glob("testdata/pillow/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, make([]byte, 1<<20)...) // room that need not be read
		c := &counting{ReaderAt: bytes.NewReader(data[:len(data)-1<<20])}
		if _, err := ReadHeader(c, int64(len(data)-1<<20)); err != nil {
			t.Fatal(err)
		}
		if c.reads > 12 || c.bytes > 12*windowLen {
			t.Errorf("%s: %d reads of %d bytes", path, c.reads, c.bytes)
		}
	}
}

func TestHasImageName(t *testing.T) {
	for name, want := range map[string]bool{
		"a.jpg": true, "a.JPEG": true, "b.c.Png": true, "a.webp": true, "a.avif": true, "a.gif": true,
		"a.bmp": true, "a.tif": true, "a.TIFF": true, "a.txt": false, "jpg": false, "a.jpg.part": false,
	} {
		if got := HasImageName(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
