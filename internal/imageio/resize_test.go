package imageio

import (
	"bytes"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"pgregory.net/rapid"
)

func noise(w, h int) *Image {
	m, r := New(w, h), rand.New(rand.NewPCG(1, 2))
	for i := range m.Pix {
		m.Pix[i] = uint8(r.Uint32())
	}
	return m
}

// exact resizes one channel in float64, both axes at once and without the
// rounding between them.
func exact(m *Image, w, h, channel int, f Filter) []float64 {
	weights := func(in, n, i int) ([]float64, int) {
		scale := float64(in) / float64(n)
		wide, centre := max(scale, 1), (float64(i)+0.5)*scale
		var out []float64
		first, sum := -1, 0.0
		for x := range in {
			if d := (float64(x) + 0.5 - centre) / wide; math.Abs(d) < f.support {
				if first < 0 {
					first = x
				}
				out = append(out, f.at(d))
				sum += f.at(d)
			}
		}
		for k := range out {
			out[k] /= sum
		}
		return out, first
	}
	out := make([]float64, w*h)
	for y := range h {
		down, y0 := weights(m.H, h, y)
		for x := range w {
			across, x0 := weights(m.W, w, x)
			for j, a := range down {
				for i, b := range across {
					out[y*w+x] += a * b * float64(m.row(y0 + j)[3*(x0+i)+channel])
				}
			}
			out[y*w+x] = min(max(out[y*w+x], 0), 255)
		}
	}
	return out
}

// TestResizeNearExact compares with the filter's definition on smooth pictures,
// where rounding and clipping between the passes stay small.
func TestResizeNearExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(rapid.IntRange(1, 40).Draw(t, "W"), rapid.IntRange(1, 40).Draw(t, "H"))
		for i := range m.Pix {
			x, y := float64(i/3%m.W), float64(i/3/m.W)
			m.Pix[i] = uint8(128 + 60*math.Sin(x/5+float64(i%3)) + 50*math.Cos(y/7))
		}
		w, h := rapid.IntRange(1, 60).Draw(t, "w"), rapid.IntRange(1, 60).Draw(t, "h")
		f := rapid.SampledFrom([]Filter{Bilinear, Bicubic, Lanczos}).Draw(t, "filter")
		got, want := m.Resize(w, h, f), exact(m, w, h, 1, f)
		for i, v := range want {
			if d := math.Abs(v - float64(got.Pix[3*i+1])); d > 2 {
				t.Fatalf("%s %dx%d to %dx%d: pixel %d is %d, want %.2f", f.Name, m.W, m.H, w, h, i, got.Pix[3*i+1], v)
			}
		}
	})
}

// TestCoverIsResizeThenCrop: Cover works on a part, and gives what the whole gives.
func TestCoverIsResizeThenCrop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := noise(rapid.IntRange(1, 90).Draw(t, "W"), rapid.IntRange(1, 90).Draw(t, "H"))
		w, h := rapid.IntRange(1, 64).Draw(t, "w"), rapid.IntRange(1, 64).Draw(t, "h")
		got := m.Cover(w, h, Bicubic)
		s := max(float64(w)/float64(m.W), float64(h)/float64(m.H))
		whole := m.Resize(int(math.Ceil(float64(m.W)*s)), int(math.Ceil(float64(m.H)*s)), Bicubic)
		if want := whole.Crop((whole.W-w)/2, (whole.H-h)/2, w, h); !bytes.Equal(got.Pix, want.Pix) {
			t.Fatal("differs from the crop of the whole")
		}
	})
}

// TestCoresDoNotMatter: the bytes are those of one core.
func TestCoresDoNotMatter(t *testing.T) {
	m := noise(700, 500)
	work := func() []byte {
		small := m.Cover(256, 320, Bicubic)
		planes := make([]float32, len(small.Pix))
		small.Planar(planes)
		out := small.turned(6).Pix
		for _, v := range planes {
			out = append(out, byte(math.Float32bits(v)>>16))
		}
		return out
	}
	want := work()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, n := range []int{1, 3, 16} {
		runtime.GOMAXPROCS(n)
		if !bytes.Equal(work(), want) {
			t.Errorf("%d cores give other bytes", n)
		}
	}
}

func TestReference(t *testing.T) {
	for _, c := range []struct{ w, h, wantW, wantH int }{
		{512, 384, 512, 384},
		{100, 75, 96, 64},
		{1024, 1024, 1024, 1024},
		{3000, 1000, 1760, 576}, // scaled to 1773 x 591
		{1025, 1024, 1024, 1008},
	} {
		if w, h := ReferenceSize(c.w, c.h); w != c.wantW || h != c.wantH {
			t.Errorf("%dx%d: size is %dx%d, want %dx%d", c.w, c.h, w, h, c.wantW, c.wantH)
		}
	}
	m := noise(100, 75)
	if got := m.Reference(Bicubic); !bytes.Equal(got.Pix, m.Crop(2, 5, 96, 64).Pix) {
		t.Error("a small reference image is not its own middle")
	}
	m = noise(3000, 400)
	if w, h := ReferenceSize(m.W, m.H); m.Reference(Bicubic).W != w || m.Reference(Bicubic).H != h {
		t.Error("Reference and ReferenceSize disagree")
	}
}
