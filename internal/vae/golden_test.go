package vae

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/tensor"
	"longship/internal/golden"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func device(t testing.TB) gpu.Device {
	t.Helper()
	dev, err := cpu.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

func open(t testing.TB, elem ...string) *Files {
	t.Helper()
	f, err := Open(golden.Path(elem...))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func encoderOf(t testing.TB, f *Files, tile int) *Encoder {
	t.Helper()
	e, err := f.Encoder(t.Context(), device(t), tile)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func decoderOf(t testing.TB, f *Files, tile int) *Decoder {
	t.Helper()
	d, err := f.Decoder(t.Context(), device(t), tile)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// record keeps a copy of every activation that a net shows.
func record(n *net, into map[string][]float32, stream gpu.Stream) {
	n.tap = func(name string, x tensor.Tensor) {
		stream.Do(func() error {
			into[name] = append([]float32(nil), x.Float32s()...)
			return nil
		})
	}
}

// near demands that got is within 1e-4 of want's largest magnitude.
func near(t *testing.T, name string, got, want []float32) {
	t.Helper()
	require.Len(t, got, len(want), name)
	var most, off float64
	for i, w := range want {
		most = max(most, math.Abs(float64(w)))
		off = max(off, math.Abs(float64(got[i])-float64(w)))
		if got[i] != got[i] {
			off = math.Inf(1)
		}
	}
	if !(off <= 1e-4*most) {
		t.Errorf("%s: off by %g, %g of the largest magnitude", name, off, off/most)
	}
}

// items cuts a [B, ...] tensor into its items.
func items(g *golden.File, name string) (data [][]float32, shape []int) {
	all, shape := g.F32(name)
	n := len(all) / shape[0]
	for i := range shape[0] {
		data = append(data, all[i*n:(i+1)*n])
	}
	return data, shape[1:]
}

func TestEncoderAgainstReference(t *testing.T) {
	g := golden.Open(t, "golden", "vae.safetensors")
	f := open(t, "tiny-dev", "vae")
	e := encoderOf(t, f, 0)
	seen := map[string][]float32{}
	record(&e.net, seen, e.stream)

	images, shape := items(g, "pixels")
	for i, px := range images {
		latent, err := e.Encode(t.Context(), px, shape[1], shape[2])
		require.NoError(t, err)
		item := func(name string) []float32 { all, _ := items(g, name); return all[i] }
		near(t, "normalised", latent, item("normalised"))
		near(t, "patchified", seen["patchified"], item("patchified"))
		near(t, "moments", seen["quant_conv"], append(append([]float32(nil), item("mean")...), item("logvar")...))
		near(t, "mode", seen["quant_conv"][:len(item("mode"))], item("mode"))
		if i == 0 {
			compareActivations(t, g, "enc.act.", seen)
		}
	}
	mean, _ := g.F32("bn_mean")
	std, _ := g.F32("bn_std")
	near(t, "bn_mean", e.mean.Float32s(), mean)
	near(t, "bn_std", e.std.Float32s(), std)
}

func TestDecoderAgainstReference(t *testing.T) {
	g := golden.Open(t, "golden", "vae.safetensors")
	d := decoderOf(t, open(t, "tiny-dev", "vae"), 0)
	seen := map[string][]float32{}
	record(&d.net, seen, d.stream)

	latents, shape := items(g, "normalised")
	decoded, _ := items(g, "decoded")
	for i, x := range latents {
		px, err := d.Decode(t.Context(), x, shape[1], shape[2])
		require.NoError(t, err)
		near(t, "decoded", px, decoded[i])
		if i == 0 {
			compareActivations(t, g, "dec.act.", seen)
		}
	}

	z, shape := items(g, "rand_z")
	want, _ := items(g, "rand_decoded")
	in := plane{data: z[0], c: shape[0], h: shape[1], w: shape[2]}
	n, err := d.begin(decoding(d.cfg, 0, in.h*d.cfg.Scale(), in.w*d.cfg.Scale()))
	require.NoError(t, err)
	out, err := d.decode(t.Context(), n, in)
	require.NoError(t, err)
	near(t, "rand_decoded", out.data, want[0])
}

// compareActivations demands that every activation under prefix was seen.
func compareActivations(t *testing.T, g *golden.File, prefix string, seen map[string][]float32) {
	t.Helper()
	for _, name := range g.Names() {
		if part, ok := strings.CutPrefix(name, prefix); ok {
			want, _ := g.F32(name)
			near(t, name, seen[part], want)
		}
	}
}

func TestTilesAgainstReference(t *testing.T) {
	g := golden.Open(t, "golden", "vae.safetensors")
	f := open(t, "tiny-dev", "vae")
	tile := f.Config.SampleSize

	pixels, shape := items(g, "tiled.pixels")
	e := encoderOf(t, f, tile)
	var z []float32
	e.net.tap = func(name string, x tensor.Tensor) {
		if name == "patchified" {
			e.stream.Do(func() error {
				z = append([]float32(nil), x.Float32s()...)
				return nil
			})
		}
	}
	_, err := e.Encode(t.Context(), pixels[0], shape[1], shape[2])
	require.NoError(t, err)
	mean, latentShape := items(g, "tiled.mean")
	near(t, "tiled.mean", unfold(z, latentShape), mean[0])

	d := decoderOf(t, f, tile)
	n, err := d.begin(decoding(d.cfg, tile, shape[1], shape[2]))
	require.NoError(t, err)
	out, err := d.decode(t.Context(), n, plane{data: mean[0], c: latentShape[0], h: latentShape[1], w: latentShape[2]})
	require.NoError(t, err)
	want, _ := items(g, "tiled.decoded")
	near(t, "tiled.decoded", out.data, want[0])
}

// unfold is the inverse of patchify, written from its definition.
func unfold(y []float32, shape []int) []float32 {
	c, h, w := shape[0], shape[1], shape[2]
	z := make([]float32, len(y))
	for ch := range c {
		for i := range h {
			for j := range w {
				folded := 4*ch + 2*(i%2) + j%2
				z[(ch*h+i)*w+j] = y[(folded*(h/2)+i/2)*(w/2)+j/2]
			}
		}
	}
	return z
}

func TestLayoutsGiveTheSameLatents(t *testing.T) {
	g := golden.Open(t, "golden", "vae.safetensors")
	px, shape := items(g, "pixels")
	var first []float32
	for _, path := range [][]string{{"tiny-dev", "vae"}, {"tiny-dev", "ae.safetensors"}} {
		z, err := encoderOf(t, open(t, path...), 0).Encode(t.Context(), px[0], shape[1], shape[2])
		require.NoError(t, err)
		if first == nil {
			first = z
		}
		require.Equal(t, first, z)
	}
}
