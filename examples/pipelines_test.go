package examples_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/tinymodel"
)

// Every pipeline of examples/pipelines runs on the tiny models and does what its
// comment says. They run in the order of their names and share a cache, so that
// fill-caches comes before from-caches.
func TestCustomPipelines(t *testing.T) {
	t.Parallel()
	p := &project{t: t, dir: t.TempDir()}
	for _, name := range []string{"quickstart/model", "quickstart/photos", "pipelines"} {
		copyAll(t, name, p.path(name))
	}
	require.NoError(t, tinymodel.Write(p.path("pipelines/klein"), tinymodel.Klein, tinymodel.Seed))
	files, err := filepath.Glob("pipelines/*.yaml")
	require.NoError(t, err)
	must := map[string]func(o outcome){
		"cache-latents.yaml": func(o outcome) {
			latents, _ := encoded(t, o)
			require.Equal(t, 12, latents)
		},
		"embed-captions.yaml": func(o outcome) {
			_, texts := encoded(t, o)
			require.Positive(t, texts)
		},
		"quantise.yaml":     func(o outcome) { require.NotEmpty(t, o.events(t, "progress")) },
		"fill-caches.yaml":  func(o outcome) { require.DirExists(t, p.path("pipelines/cache")) },
		"from-caches.yaml":  func(o outcome) { require.Equal(t, []int{1, 2}, o.steps(t)) },
		"two-datasets.yaml": func(o outcome) { require.Equal(t, 12.0, o.summary(t).number("extra.images used")) },
		"two-checkpoints.yaml": func(o outcome) {
			require.NotEmpty(t, o.events(t, "validation"))
			saved, err := filepath.Glob(p.path("pipelines/output/two-checkpoints/*.safetensors"))
			require.NoError(t, err)
			require.Greater(t, len(saved), 1, "%v", saved)
		},
		"inspect.yaml": func(o outcome) { require.Equal(t, 12.0, o.summary(t).number("dataset.images used")) },
		"klein.yaml":   func(o outcome) { require.Equal(t, []int{1, 2}, o.steps(t)) },
	}
	require.Len(t, files, len(must))
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			check, ok := must[filepath.Base(file)]
			require.True(t, ok, "no test says what it must do")
			check(p.done("run", filepath.ToSlash(file), "--json"))
		})
	}
}
