package imageio

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"testing"
)

func encodePNG(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func decode(t *testing.T, file []byte, a Alpha) *Image {
	t.Helper()
	m, err := Decode(bytes.NewReader(file), int64(len(file)), a)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAlpha(t *testing.T) {
	m := image.NewNRGBA(image.Rect(0, 0, 3, 1))
	m.SetNRGBA(0, 0, color.NRGBA{200, 100, 0, 0})
	m.SetNRGBA(1, 0, color.NRGBA{200, 100, 0, 51}) // a fifth
	m.SetNRGBA(2, 0, color.NRGBA{200, 100, 0, 255})
	file := encodePNG(t, m)
	for alpha, want := range map[Alpha][]uint8{
		AlphaDrop:  {200, 100, 0, 200, 100, 0, 200, 100, 0},
		AlphaWhite: {255, 255, 255, 244, 224, 204, 200, 100, 0},
		AlphaBlack: {0, 0, 0, 40, 20, 0, 200, 100, 0},
	} {
		t.Run(string(alpha), func(t *testing.T) {
			if got := decode(t, file, alpha).Pix; !bytes.Equal(got, want) {
				t.Errorf("pixels are %v, want %v", got, want)
			}
		})
	}
}

// TestDeepGray: 16-bit grey keeps its upper 8 bits, as 16-bit colour does.
// (Pillow clips it at 255 instead, which makes nearly all of it white.)
func TestDeepGray(t *testing.T) {
	m := image.NewGray16(image.Rect(0, 0, 2, 1))
	m.SetGray16(0, 0, color.Gray16{0x80ff})
	m.SetGray16(1, 0, color.Gray16{0x0102})
	if got, want := decode(t, encodePNG(t, m), AlphaDrop).Pix, []uint8{128, 128, 128, 1, 1, 1}; !bytes.Equal(got, want) {
		t.Errorf("pixels are %v, want %v", got, want)
	}
}

func TestParseAlpha(t *testing.T) {
	if _, err := ParseAlpha("white"); err != nil {
		t.Error(err)
	}
	if _, err := ParseAlpha("pink"); err == nil {
		t.Error("pink is taken")
	}
}
