package latents

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/cache"
	"longship/gpu/cpu"
	"longship/internal/dtype"
	"longship/internal/golden"
	"longship/pipeline"
	"longship/pipeline/stagetest"
	"longship/stages/port"
)

func TestEncodeAFolderWithoutAPipeline(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "in"), 0o755))
	var samples []port.Sample
	for i := range 3 {
		samples = append(samples, sampleOf(t, filepath.Join(dir, "in", fmt.Sprintf("%d.png", i)), picture(t, i, 50, 40), 48, 32))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "in", "text.jpg"), []byte("no image"), 0o644))
	got, o := run(t, dir, "{cache: ./cache}", samples...)
	require.NoError(t, o.Err)

	images, faults := Folder(filepath.Join(dir, "in"), nil)
	require.Len(t, faults, 1)
	require.ErrorContains(t, faults[0], "text.jpg")
	store, err := cache.Open(t.Context(), filepath.Join(dir, "other"), cache.Options{})
	require.NoError(t, err)
	defer store.Close()
	dev, err := cpu.New()
	require.NoError(t, err)
	for range 2 { // encoded, then found
		var refs []cache.Ref
		err = Encode(t.Context(), store, dev, images, Options{VAE: golden.Path("tiny-dev", "vae")}, func(i int, ref cache.Ref, err error) error {
			require.Equal(t, i, len(refs))
			require.NoError(t, err)
			refs = append(refs, ref)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, []cache.Ref{got[0].Latent, got[1].Latent, got[2].Latent}, refs)
	}
	require.NoError(t, dev.Close())
}

func TestTilesAreAnotherLatentOnlyWhereTheyCut(t *testing.T) {
	dir := t.TempDir()
	small := sampleOf(t, filepath.Join(dir, "small.png"), picture(t, 1, 64, 64), 64, 64)
	large := sampleOf(t, filepath.Join(dir, "large.png"), picture(t, 2, 96, 64), 96, 64)
	whole, o := run(t, dir, "{cache: ./cache}", small, large)
	require.NoError(t, o.Err)
	tiled, o := run(t, dir, "{cache: ./cache, tile: 64}", small, large)
	require.NoError(t, o.Err)
	require.Equal(t, whole[0].Latent, tiled[0].Latent)
	require.NotEqual(t, whole[1].Latent, tiled[1].Latent)
	require.Equal(t, 1, o.Summary()["latents encoded"])
}

func TestConfigFaults(t *testing.T) {
	for cfg, want := range map[string]string{
		"{tile: 100}":       "tile",
		"{tile: -32}":       "tile",
		"{precision: f16}":  "precision",
		"{resize: nearest}": "resize",
		"{workers: -1}":     "workers",
		`{cache: ""}`:       "cache",
	} {
		t.Run(cfg, func(t *testing.T) {
			_, o := run(t, t.TempDir(), cfg)
			require.ErrorContains(t, o.Err, want)
		})
	}
}

func TestADamagedLatentIsEncodedAgain(t *testing.T) {
	dir := t.TempDir()
	var samples []port.Sample
	for i := range 3 {
		samples = append(samples, sampleOf(t, filepath.Join(dir, fmt.Sprintf("%d.png", i)), picture(t, i, 200, 200), 192, 192))
	}
	got, o := run(t, dir, "{cache: ./cache}", samples...)
	require.NoError(t, o.Err)
	want := loadLatent(t, filepath.Join(dir, "cache"), got[1].Latent)

	flipped := 0
	needle := dtype.Bytes(want)
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, "cache"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if at := bytes.Index(data, needle); at >= 0 {
			data[at+len(needle)/2] ^= 1
			flipped++
			return os.WriteFile(path, data, 0o644)
		}
		return nil
	}))
	require.Equal(t, 1, flipped)
	_, o = run(t, dir, "{cache: ./cache}", samples...)
	require.NoError(t, o.Err)
	require.Equal(t, 1, o.Summary()["latents encoded"])
	require.Equal(t, want, loadLatent(t, filepath.Join(dir, "cache"), got[1].Latent))
}

func TestStopBeforeTheWork(t *testing.T) {
	dir := t.TempDir()
	s := sampleOf(t, filepath.Join(dir, "a.png"), picture(t, 1, 40, 40), 32, 32)
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	got := stagetest.Collect[port.Sample]("encoded")
	o := stagetest.Try(t, Factory(), "{cache: ./cache}", stagetest.Dir(dir), stagetest.Signals(signals),
		stagetest.Head("model: {path: "+golden.Path("tiny-dev")+"}"), stagetest.Feed("samples", s, s, s), got)
	require.ErrorIs(t, o.Err, pipeline.ErrInterrupted)
}
