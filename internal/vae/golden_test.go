package vae

import (
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

// tol is the bound for outputs, of the largest magnitude.
const tol = 1e-4

func TestEncoderAgainstReference(t *testing.T) {
	g := golden.Open(t, "golden", "vae.safetensors")
	f := open(t, "tiny-dev", "vae")
	e := encoderOf(t, f, 0)
	seen := map[string][]float32{}
	record(&e.net, seen, e.stream)

	images, shape := g.Items("pixels")
	for i, px := range images {
		latent, err := e.Encode(t.Context(), px, shape[1], shape[2])
		require.NoError(t, err)
		if i == 0 {
			compareActivations(t, g, "enc.act.", seen)
		}
		item := func(name string) []float32 { all, _ := g.Items(name); return all[i] }
		golden.Near(t, "normalised", latent, item("normalised"), tol)
		golden.Near(t, "patchified", seen["patchified"], item("patchified"), tol)
		n := len(item("mode"))
		golden.Near(t, "mode", seen["quant_conv"][:n], item("mode"), tol)
		logvar := seen["quant_conv"][n:]
		for k, v := range logvar { // the reference clamps it; nothing here reads it
			logvar[k] = min(max(v, -30), 20)
		}
		golden.Near(t, "moments", seen["quant_conv"], item("moments"), tol)
	}
	mean, _ := g.F32("bn_mean")
	std, _ := g.F32("bn_std")
	golden.Near(t, "bn_mean", e.mean.Float32s(), mean, tol)
	golden.Near(t, "bn_std", e.std.Float32s(), std, tol)
}

func TestDecoderAgainstReference(t *testing.T) {
	g := golden.Open(t, "golden", "vae.safetensors")
	d := decoderOf(t, open(t, "tiny-dev", "vae"), 0)
	seen := map[string][]float32{}
	record(&d.net, seen, d.stream)

	latents, shape := g.Items("normalised")
	decoded, _ := g.Items("decoded")
	denormalised, _ := g.Items("denormalised")
	for i, x := range latents {
		px, err := d.Decode(t.Context(), x, shape[1], shape[2])
		require.NoError(t, err)
		golden.Near(t, "denormalised", seen["denormalised"], denormalised[i], tol)
		golden.Near(t, "decoded", px, decoded[i], tol)
		if i == 0 {
			compareActivations(t, g, "dec.act.", seen)
		}
	}

	z, shape := g.Items("rand_z")
	want, _ := g.Items("rand_decoded")
	in := plane{data: z[0], c: shape[0], h: shape[1], w: shape[2]}
	n, err := d.begin(decoding(d.cfg, 0, in.h*d.cfg.Scale(), in.w*d.cfg.Scale()))
	require.NoError(t, err)
	out, err := d.decode(t.Context(), n, in)
	require.NoError(t, err)
	golden.Near(t, "rand_decoded", out.data, want[0], tol)
}

// compareActivations demands that every activation under prefix was seen.
func compareActivations(t *testing.T, g *golden.File, prefix string, seen map[string][]float32) {
	t.Helper()
	for _, part := range g.Under(prefix) {
		want, _ := g.F32(prefix + part)
		golden.Near(t, prefix+part, seen[part], want, tol)
	}
}

func TestTilesAgainstReference(t *testing.T) {
	g := golden.Open(t, "golden", "vae.safetensors")
	f := open(t, "tiny-dev", "vae")
	tile := f.Config.SampleSize

	pixels, shape := g.Items("tiled.pixels")
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
	mean, latentShape := g.Items("tiled.mean")
	golden.Near(t, "tiled.mean", unfold(z, latentShape), mean[0], tol)

	d := decoderOf(t, f, tile)
	n, err := d.begin(decoding(d.cfg, tile, shape[1], shape[2]))
	require.NoError(t, err)
	out, err := d.decode(t.Context(), n, plane{data: mean[0], c: latentShape[0], h: latentShape[1], w: latentShape[2]})
	require.NoError(t, err)
	want, _ := g.Items("tiled.decoded")
	golden.Near(t, "tiled.decoded", out.data, want[0], tol)
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
	px, shape := g.Items("pixels")
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
