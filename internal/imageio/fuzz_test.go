package imageio

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"longship/internal/golden"
)

// FuzzDecode: whatever the bytes, Decode returns, and what it returns has the
// size that the header says. Seeds: the golden images and those of testdata.
func FuzzDecode(f *testing.F) {
	for _, pattern := range []string{golden.Path("images", "*"), "testdata/pillow/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no seeds in %s: %v", pattern, err)
		}
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	// The AVIF decoder compiles itself at its first use, which is slow under coverage.
	if _, err := DecodeFile("testdata/pillow/gray.avif", AlphaDrop); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ReadHeader(bytes.NewReader(data), int64(len(data)))
		if err != nil || h.Width*h.Height > 1<<20 {
			return
		}
		m, err := Decode(bytes.NewReader(data), int64(len(data)), AlphaWhite)
		if err != nil {
			return
		}
		if m.W != h.Width || m.H != h.Height || len(m.Pix) != 3*m.W*m.H {
			t.Errorf("decoded %dx%d with %d bytes, the header says %dx%d", m.W, m.H, len(m.Pix), h.Width, h.Height)
		}
	})
}
