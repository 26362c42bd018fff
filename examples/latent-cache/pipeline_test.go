package latentcache_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/cache"
	"longship/pipeline"
	"longship/stages/dataset"
	"longship/stages/latents"
)

// run runs pipeline.yaml with its cache in dir and returns the summary.
func run(t *testing.T, dir string) map[string]any {
	t.Helper()
	registry, err := pipeline.NewRegistry(dataset.Factory(), latents.Factory())
	require.NoError(t, err)
	p, err := registry.Load("pipeline.yaml", pipeline.Options{Set: []string{
		"stages.dataset.cache=" + filepath.Join(dir, "cache"), "stages.latents.cache=" + filepath.Join(dir, "cache"),
		"output=" + filepath.Join(dir, "output"),
	}})
	require.NoError(t, err)
	result, err := p.Run(t.Context(), pipeline.RunOptions{})
	require.NoError(t, err)
	summary := map[string]any{}
	for _, e := range result.Summary {
		summary[e.Stage+"."+e.Key] = e.Value
	}
	return summary
}

// The first run encodes every photo at both resolutions, the second none.
func TestPipeline(t *testing.T) {
	photos, err := filepath.Glob("../quickstart/photos/*.jpg")
	require.NoError(t, err)
	dir := t.TempDir()
	first := run(t, dir)
	second := run(t, dir)
	require.Equal(t, fmt.Sprint(2*len(photos)), fmt.Sprint(first["latents.latents encoded"]), "%v", first)
	require.Equal(t, "0", fmt.Sprint(second["latents.latents encoded"]), "%v", second)

	store, err := cache.Open(t.Context(), filepath.Join(dir, "cache"), cache.Options{Existing: true})
	require.NoError(t, err)
	defer store.Close()
	n := 0
	for _, err := range store.List(t.Context()) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 2*len(photos), n)
	_, err = os.Stat(filepath.Join(dir, "output"))
	require.ErrorIs(t, err, os.ErrNotExist, "a cache alone has no output")
}
