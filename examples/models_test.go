package examples_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/golden"
	"longship/internal/tinymodel"
)

// Changing one path is all that another model takes: klein, a folder in shards,
// and the single files of BFL and ComfyUI, which train as the folder they are of.
func TestOtherModels(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	require.NoError(t, tinymodel.Write(p.path("klein"), tinymodel.Klein, tinymodel.Seed))
	losses := func(model string) (out []float64) {
		o := p.done(append(quick("pipeline.yaml", "model.path="+model, "stages.quantize.qtype=bf16"), "--restart")...)
		for _, e := range append(o.events(t, "step"), o.events(t, "validation")...) {
			out = append(out, e.number("loss"))
		}
		require.Len(t, out, 6)
		return out
	}
	losses("klein")
	for _, kind := range []string{"tiny-dev", "tiny-klein"} {
		folder := golden.Path(kind)
		want := losses(folder)
		files, err := filepath.Glob(filepath.Join(folder, "*.safetensors"))
		require.NoError(t, err)
		tried := 0
		for _, file := range files {
			if filepath.Base(file) == "ae.safetensors" {
				continue
			}
			tried++
			require.InDeltaSlice(t, want, losses(file), 2e-2, file) // one of them is rounded to bfloat16
		}
		require.Positive(t, tried, "%s has no single file", folder)
	}
}
