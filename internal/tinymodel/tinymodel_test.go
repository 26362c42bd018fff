package tinymodel

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/safetensors"
	"longship/internal/vae"
)

// contents returns the bytes of every file below dir by its slash path.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[filepath.ToSlash(rel)] = string(b)
		return err
	}))
	return out
}

// The quickstart's model is what the code makes. (The autoencoder's statistics
// are float sums: another processor family may round them differently.)
func TestQuickstartModelIsReproduced(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the committed folder was made on amd64")
	}
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, Write(dir, Dev, Seed))
	want := contents(t, filepath.Join("..", "..", "examples", "quickstart", "model"))
	got := contents(t, dir)
	for name := range want {
		require.True(t, want[name] == got[name], "%s differs from what the generator makes", name)
	}
	require.Len(t, got, len(want))
}

func TestModelHasTheShapeItSays(t *testing.T) {
	for _, kind := range []Kind{Dev, Klein} {
		t.Run(string(kind), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "model")
			require.NoError(t, Write(dir, kind, 7))
			f, err := safetensors.Open(filepath.Join(dir, "transformer", "diffusion_pytorch_model.safetensors"))
			require.NoError(t, err)
			defer f.Close()
			var params int64
			for _, info := range f.Tensors {
				params += int64(info.Len())
			}
			require.Equal(t, Config(kind).Params(), params)
			v, err := vae.Open(filepath.Join(dir, "vae"))
			require.NoError(t, err)
			require.NoError(t, v.Close())
		})
	}
}

func TestSeedsDiffer(t *testing.T) {
	a, b := transformer(Config(Dev), 1), transformer(Config(Dev), 2)
	require.NotEqual(t, a[0].data[:8], b[0].data[:8])
}

func TestWriteOverwritesNothing(t *testing.T) {
	dir := t.TempDir()
	require.ErrorContains(t, Write(dir, Dev, 1), "exists already")
	require.Error(t, Write(filepath.Join(dir, "x"), "flux3", 1))
}
