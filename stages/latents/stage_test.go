package latents

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/cache"
	"longship/gpu/cpu"
	"longship/internal/dtype"
	"longship/internal/golden"
	"longship/internal/imageio"
	"longship/internal/vae"
	"longship/pipeline/stagetest"
	"longship/stages/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// picture is a PNG that depends on n.
func picture(t testing.TB, n, w, h int) []byte {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.Set(x, y, color.RGBA{uint8(x*5 + n), uint8(y * 3), uint8(x*y + 40*n), 255})
		}
	}
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, m))
	return b.Bytes()
}

// sampleOf writes a file and lists it as dataset does.
func sampleOf(t testing.TB, path string, data []byte, w, h int) port.Sample {
	t.Helper()
	require.NoError(t, os.WriteFile(path, data, 0o644))
	return port.Sample{
		ID: filepath.Base(path), Path: []byte(path), Content: cache.HashBytes(data), Alpha: "drop",
		Bucket: port.Bucket{W: w, H: h}, Repeats: 1, Weight: 1,
	}
}

// run sends samples through the stage, whose YAML config is cfg.
func run(t *testing.T, dir, cfg string, samples ...port.Sample) ([]port.Sample, *stagetest.Outcome) {
	t.Helper()
	return runOn(t, golden.Path("tiny-dev"), "cpu", dir, cfg, samples...)
}

func runOn(t *testing.T, model, device, dir, cfg string, samples ...port.Sample) ([]port.Sample, *stagetest.Outcome) {
	t.Helper()
	got := stagetest.Collect[port.Sample]("encoded")
	o := stagetest.Try(t, Factory(), cfg, stagetest.Dir(dir),
		stagetest.Head("device: "+device), stagetest.Head("model: {path: "+model+"}"),
		stagetest.Feed("samples", samples...), got)
	return got.Values, o
}

// loadLatent reads a latent from a cache folder.
func loadLatent(t *testing.T, dir string, ref cache.Ref) []float32 {
	t.Helper()
	store, err := cache.Open(t.Context(), dir, cache.Options{})
	require.NoError(t, err)
	defer store.Close()
	raw, err := store.Get(t.Context(), ref, nil)
	require.NoError(t, err)
	return append([]float32(nil), dtype.View[float32](raw)...)
}

func TestConformance(t *testing.T) { stagetest.Conformance(t, Factory(), "") }

func TestLatentsAreThoseOfTheAutoencoder(t *testing.T) {
	dir := t.TempDir()
	s := sampleOf(t, filepath.Join(dir, "a.png"), picture(t, 1, 90, 70), 64, 48)
	ref := sampleOf(t, filepath.Join(dir, "r.png"), picture(t, 2, 40, 50), 32, 48)
	s.References = []port.Reference{{Path: ref.Path, Content: ref.Content, Size: ref.Bucket}}
	got, o := run(t, dir, "{cache: ./cache}", s)
	require.NoError(t, o.Err)
	require.Len(t, got, 1)
	require.Equal(t, filepath.Join(dir, "cache"), got[0].LatentCache)

	dev, err := cpu.New()
	require.NoError(t, err)
	files, err := vae.Open(golden.Path("tiny-dev", "vae"))
	require.NoError(t, err)
	defer files.Close()
	enc, err := files.Encoder(t.Context(), dev, 0)
	require.NoError(t, err)
	defer enc.Close()
	want := func(path []byte, fit func(m *imageio.Image) *imageio.Image) []float32 {
		m, err := imageio.DecodeFile(string(path), imageio.AlphaDrop)
		require.NoError(t, err)
		m = fit(m)
		px := make([]float32, 3*m.W*m.H)
		m.Planar(px)
		z, err := enc.Encode(t.Context(), px, m.H, m.W)
		require.NoError(t, err)
		return z
	}
	require.Equal(t, []int{files.Config.TokenChannels(), 3, 4}, got[0].Latent.Shape)
	require.Equal(t, want(s.Path, func(m *imageio.Image) *imageio.Image { return m.Cover(64, 48, imageio.Bicubic) }),
		loadLatent(t, got[0].LatentCache, got[0].Latent))
	require.Equal(t, want(ref.Path, func(m *imageio.Image) *imageio.Image { return m.Reference(imageio.Bicubic) }),
		loadLatent(t, got[0].LatentCache, got[0].References[0].Latent))
}

func TestOnlyWhatIsMissingIsEncoded(t *testing.T) {
	dir := t.TempDir()
	var samples []port.Sample
	for i := range 5 {
		samples = append(samples, sampleOf(t, filepath.Join(dir, fmt.Sprintf("%d.png", i)), picture(t, i, 40, 40), 32, 32))
	}
	again := samples[0]
	again.ID += " again"
	samples = append(samples, again)

	encoded := func(samples ...port.Sample) any {
		t.Helper()
		got, o := run(t, dir, "{cache: ./cache}", samples...)
		require.NoError(t, o.Err)
		require.Len(t, got, len(samples))
		for i, s := range got {
			require.Equal(t, samples[i].ID, s.ID, "order")
			require.False(t, s.Latent.IsZero())
		}
		return o.Summary()["latents encoded"]
	}
	require.Equal(t, 5, encoded(samples...), "first run")
	require.Equal(t, 0, encoded(samples...), "second run")

	renamed := samples[1]
	renamed.Path = []byte(filepath.Join(dir, "renamed.png"))
	require.NoError(t, os.Rename(string(samples[1].Path), string(renamed.Path)))
	samples[1] = renamed
	require.Equal(t, 0, encoded(samples...), "after a rename")

	samples[2] = sampleOf(t, string(samples[2].Path), picture(t, 77, 40, 40), 32, 32)
	require.Equal(t, 1, encoded(samples...), "after a replacement")

	samples[3].Bucket = port.Bucket{W: 48, H: 32}
	require.Equal(t, 1, encoded(samples...), "in another bucket")
	samples[3].Alpha = "white"
	require.Equal(t, 1, encoded(samples...), "over white")
}

func TestHitsTouchNoDevice(t *testing.T) {
	dir := t.TempDir()
	s := sampleOf(t, filepath.Join(dir, "a.png"), picture(t, 1, 40, 40), 32, 32)
	_, o := run(t, dir, "{cache: ./cache}", s)
	require.NoError(t, o.Err)
	require.NoError(t, os.Remove(string(s.Path)))

	// A card that this machine does not have: whoever opens it fails.
	_, o = runOn(t, golden.Path("tiny-dev"), "cuda:99", dir, "{cache: ./cache}", s)
	require.NoError(t, o.Err)
	s.Bucket.W = 48
	_, o = runOn(t, golden.Path("tiny-dev"), "cuda:99", dir, "{cache: ./cache}", s)
	require.ErrorContains(t, o.Err, "cuda:99")
}

func TestBadImagesAreSetAside(t *testing.T) {
	dir := t.TempDir()
	good := sampleOf(t, filepath.Join(dir, "good.png"), picture(t, 1, 40, 40), 32, 32)
	cut := sampleOf(t, filepath.Join(dir, "cut.png"), picture(t, 2, 40, 40)[:200], 32, 32)
	gone := sampleOf(t, filepath.Join(dir, "gone.png"), picture(t, 3, 40, 40), 32, 32)
	require.NoError(t, os.Remove(string(gone.Path)))
	changed := sampleOf(t, filepath.Join(dir, "changed.png"), picture(t, 4, 40, 40), 32, 32)
	require.NoError(t, os.WriteFile(string(changed.Path), picture(t, 5, 40, 40), 0o644))
	last := sampleOf(t, filepath.Join(dir, "last.png"), picture(t, 6, 40, 40), 32, 32)

	got, o := run(t, dir, "{cache: ./cache, workers: 2}", cut, good, gone, changed, last, cut)
	require.NoError(t, o.Err)
	require.Len(t, got, 2)
	require.Equal(t, "good.png", got[0].ID)
	require.Equal(t, "last.png", got[1].ID)
	require.Len(t, o.SetAside(), 4)
	require.Contains(t, fmt.Sprint(o.Result.SetAside), "changed since")

	_, o = run(t, t.TempDir(), "{cache: ./cache}", cut, gone)
	require.ErrorContains(t, o.Err, "none of the 2 images")
	require.ErrorContains(t, o.Err, "cut.png")
}

// TestVersion pins what the stage makes: if this fails the same inputs give
// other latents, and version must be raised. Values are rounded to 1/32, since
// the last bits of a product depend on processor and BLAS library.
func TestVersion(t *testing.T) {
	dir := t.TempDir()
	s := sampleOf(t, filepath.Join(dir, "a.png"), picture(t, 1, 90, 70), 64, 48)
	model, err := filepath.Abs("../../examples/quickstart/model")
	require.NoError(t, err)
	got, o := runOn(t, model, "cpu", dir, "{cache: ./cache}", s)
	require.NoError(t, o.Err)
	var b []byte
	for _, v := range loadLatent(t, got[0].LatentCache, got[0].Latent) {
		b = append(b, byte(math.Round(32*float64(v))))
	}
	const pinned = "5ddf09487c9b16b924464724295cb18039ff5e90098f3ee83dcd2c2961da8dd6"
	require.Equal(t, "latent/1", version, "pin the hash of the new version's output")
	require.Equal(t, pinned, cache.HashBytes(b).String(), "the latent of %s has changed", version)
}
