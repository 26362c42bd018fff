package imageio

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"longship/internal/golden"
)

// load makes an image of a golden tensor [H, W, 3].
func load(t *testing.T, f *golden.File, name string) *Image {
	t.Helper()
	shape := f.Shape(name)
	if len(shape) != 3 || shape[2] != 3 {
		t.Fatalf("%s has shape %v, want [H, W, 3]", name, shape)
	}
	return &Image{W: shape[1], H: shape[0], Pix: f.Raw(name)}
}

// differs returns the largest difference of two images of one size.
func differs(t *testing.T, got, want *Image) int {
	t.Helper()
	if got.W != want.W || got.H != want.H {
		t.Fatalf("size is %dx%d, want %dx%d", got.W, got.H, want.W, want.H)
	}
	most := 0
	for i, v := range want.Pix {
		most = max(most, int(v)-int(got.Pix[i]), int(got.Pix[i])-int(v))
	}
	return most
}

// tolerance is 0 for lossless files, 3 for JPEG and WebP.
func tolerance(name string) int {
	if ext := filepath.Ext(name); ext == ".jpg" || ext == ".webp" && !strings.Contains(name, "lossless") {
		return 3
	}
	return 0
}

func TestDecodeEqualsPillow(t *testing.T) {
	f := golden.Open(t, "golden", "images.safetensors")
	for _, name := range f.Names() {
		file, ok := strings.CutPrefix(name, "decoded.")
		if !ok {
			continue
		}
		t.Run(file, func(t *testing.T) {
			want := load(t, f, name)
			path := golden.Path("images", file)
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
			if d := differs(t, got, want); d > tolerance(file) {
				t.Errorf("differs by %d of 255, at most %d allowed", d, tolerance(file))
			}
		})
	}
}

var byName = map[string]Filter{"BILINEAR": Bilinear, "BICUBIC": Bicubic, "LANCZOS": Lanczos}

func TestResizeEqualsPillow(t *testing.T) {
	f := golden.Open(t, "golden", "images.safetensors")
	src := load(t, f, "src")
	for _, name := range f.Names() {
		if !strings.HasPrefix(name, "resize.") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			filter, ok := byName[name[strings.LastIndexByte(name, '.')+1:]]
			if !ok {
				t.Fatal("unknown filter")
			}
			want := load(t, f, name)
			if d := differs(t, src.Resize(want.W, want.H, filter), want); d != 0 {
				t.Errorf("differs by %d of 255", d)
			}
		})
	}
}

// TestTrainTransform follows the diffusers training script: scale to cover,
// crop the centre, to [-1, 1].
func TestTrainTransform(t *testing.T) {
	f := golden.Open(t, "golden", "images.safetensors")
	if !f.Has("train.resized") {
		t.Skip("the reference has none: it was made without torchvision")
	}
	src, resized, cropped := load(t, f, "src"), load(t, f, "train.resized"), load(t, f, "train.cropped")
	got := src.Resize(resized.W, resized.H, Bilinear)
	if d := differs(t, got, resized); d != 0 {
		t.Errorf("resize differs by %d of 255", d)
	}
	got = got.Crop((got.W-cropped.W)/2, (got.H-cropped.H)/2, cropped.W, cropped.H)
	if d := differs(t, got, cropped); d != 0 {
		t.Errorf("crop differs by %d of 255", d)
	}
	want, shape := f.F32("train.tensor")
	if len(shape) != 3 || shape[0] != 3 || shape[1] != got.H || shape[2] != got.W {
		t.Fatalf("tensor has shape %v", shape)
	}
	tensor := make([]float32, len(want))
	got.Planar(tensor)
	for i, v := range want {
		if v != tensor[i] {
			t.Fatalf("element %d is %v, want %v", i, tensor[i], v)
		}
	}
}

// TestReferenceTransform follows Flux2ImageProcessor, whose area here is that of
// the golden rather than 1024 x 1024.
func TestReferenceTransform(t *testing.T) {
	f := golden.Open(t, "golden", "images.safetensors")
	src, small := load(t, f, "ip.src"), load(t, f, "ip.area")
	got := src.Resize(small.W, small.H, Lanczos)
	if d := differs(t, got, small); d != 0 {
		t.Errorf("resize differs by %d of 255", d)
	}
	want, shape := f.F32("ip.pixels") // [1, 3, H, W]
	h, w := shape[2], shape[3]
	tensor := make([]float32, len(want))
	got.Crop((got.W-w)/2, (got.H-h)/2, w, h).Planar(tensor)
	for i, v := range want {
		if math.Abs(float64(v-tensor[i])) > 1e-6 {
			t.Fatalf("element %d is %v, want %v", i, tensor[i], v)
		}
	}
}

func TestDecodeSurvivesEveryCut(t *testing.T) {
	files, err := filepath.Glob(golden.Path("images", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no images: %v", err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for n := 0; n < len(data); n += 1 + len(data)/37 {
				Decode(bytes.NewReader(data[:n]), int64(n), AlphaDrop) // must return
			}
			if _, err := Decode(bytes.NewReader(data[:len(data)/2]), int64(len(data)/2), AlphaDrop); err == nil {
				t.Error("half a file decodes")
			}
		})
	}
}
