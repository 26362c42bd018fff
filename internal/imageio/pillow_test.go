package imageio

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDecodeFilesOfPillow decodes what testdata/README.md describes.
func TestDecodeFilesOfPillow(t *testing.T) {
	files, err := os.ReadDir("testdata/pillow")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(f.Name(), func(t *testing.T) {
			path := filepath.Join("testdata/pillow", f.Name())
			want, err := DecodeFile(filepath.Join("testdata/want", f.Name()+".png"), AlphaDrop)
			if err != nil {
				t.Fatal(err)
			}
			h, err := ReadHeaderFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if h.Width != want.W || h.Height != want.H {
				t.Errorf("header says %dx%d, want %dx%d", h.Width, h.Height, want.W, want.H)
			}
			got, err := DecodeFile(path, AlphaDrop)
			if err != nil {
				t.Fatal(err)
			}
			if d := differs(t, got, want); d > tolerance(f.Name()) {
				t.Errorf("differs by %d of 255, at most %d allowed", d, tolerance(f.Name()))
			}
		})
	}
}
