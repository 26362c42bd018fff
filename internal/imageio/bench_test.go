package imageio

import (
	"bytes"
	"image"
	"image/jpeg"
	"image/png"
	"math"
	"os"
	"testing"

	"longship/internal/golden"
)

// photo is 12 megapixels of smooth colours with some noise.
func photo() *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, 4000, 3000))
	grain := noise(97, 89)
	for y := range 3000 {
		for x := range 4000 {
			g := grain.Pix[3*(y%89*97+x%97)] >> 4
			i := m.PixOffset(x, y)
			m.Pix[i] = uint8(120+100*math.Sin(float64(x)/300)) + g
			m.Pix[i+1] = uint8(120+100*math.Cos(float64(y)/200)) + g
			m.Pix[i+2] = uint8((x+y)/32) + g
			m.Pix[i+3] = 255
		}
	}
	return m
}

// BenchmarkDecode: SetBytes counts decoded bytes, 3 a pixel.
func BenchmarkDecode(b *testing.B) {
	m := photo()
	var jpg, pn bytes.Buffer
	if err := jpeg.Encode(&jpg, m, &jpeg.Options{Quality: 90}); err != nil {
		b.Fatal(err)
	}
	if err := (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&pn, m); err != nil {
		b.Fatal(err)
	}
	webp, err := os.ReadFile(golden.Path("images", "lossy.webp"))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		file []byte
	}{
		{"jpeg 12 MP", jpg.Bytes()}, {"png 12 MP", pn.Bytes()},
		{"jpeg 12 MP Display P3", withProfile(jpg.Bytes(), profile(displayP3, 2.2))},
		{"webp small", webp},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				m, err := Decode(bytes.NewReader(c.file), int64(len(c.file)), AlphaDrop)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(len(m.Pix)))
			}
		})
	}
}

// withProfile puts an ICC profile behind a JPEG's first marker.
func withProfile(file, p []byte) []byte {
	n := 2 + 14 + len(p)
	head := append([]byte{0xff, 0xd8, 0xff, 0xe2, byte(n >> 8), byte(n)}, "ICC_PROFILE\x00\x01\x01"...)
	return append(append(head, p...), file[2:]...)
}

func BenchmarkCover(b *testing.B) {
	m := noise(4000, 3000)
	for _, f := range []Filter{Bilinear, Bicubic, Lanczos} {
		b.Run(f.Name, func(b *testing.B) {
			b.SetBytes(int64(len(m.Pix)))
			for b.Loop() {
				m.Cover(1184, 880, f)
			}
		})
	}
}

// BenchmarkPrepare is all that happens to a photo before the VAE.
func BenchmarkPrepare(b *testing.B) {
	var file bytes.Buffer
	if err := jpeg.Encode(&file, photo(), &jpeg.Options{Quality: 90}); err != nil {
		b.Fatal(err)
	}
	planes := make([]float32, 3*1184*880)
	for b.Loop() {
		m, err := Decode(bytes.NewReader(file.Bytes()), int64(file.Len()), AlphaDrop)
		if err != nil {
			b.Fatal(err)
		}
		m.Cover(1184, 880, Bicubic).Planar(planes)
		b.SetBytes(int64(len(m.Pix)))
	}
}

func BenchmarkReadHeader(b *testing.B) {
	path := golden.Path("images", "exif6.jpg")
	for b.Loop() {
		if _, err := ReadHeaderFile(path); err != nil {
			b.Fatal(err)
		}
	}
}
