package lorafile

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/golden"
	"longship/internal/safetensors"
)

func inspect(t testing.TB, path string) *Report {
	t.Helper()
	r, err := Inspect(path)
	require.NoError(t, err)
	return r
}

// The same adapter in all layouts has the same pairs and the same product.
func TestInspectGoldenLayouts(t *testing.T) {
	type want struct{ layout string }
	files := map[string]want{
		"diffusers/pytorch_lora_weights.safetensors": {"diffusers"},
		"diffusers_folded.safetensors":               {"diffusers"},
		"bfl_lora_ab.safetensors":                    {"comfyui"},
		"comfy_alpha.safetensors":                    {"comfyui"},
		"kohya.safetensors":                          {"kohya"},
	}
	energy := map[string]float64{} // Σ‖ΔW‖², which splitting a module keeps
	for name, w := range files {
		t.Run(name, func(t *testing.T) {
			r := inspect(t, golden.Path("lora", filepath.FromSlash(name)))
			require.Equal(t, w.layout, r.Layout)
			require.NotEmpty(t, r.Modules)
			require.Contains(t, r.Base, "a FLUX.2 of width")
			for _, m := range r.Modules {
				require.Equal(t, "lora", m.Kind)
				require.InDelta(t, m.Alpha/float64(m.Rank), m.Scale, 1e-12)
				energy[name] += m.Norm * m.Norm
			}
		})
	}
	for name, e := range energy {
		require.InEpsilon(t, energy["diffusers_folded.safetensors"], e, 1e-4, name)
	}
}

func TestInspectNotes(t *testing.T) {
	r := inspect(t, golden.Path("lora", "diffusers", "pytorch_lora_weights.safetensors"))
	require.Contains(t, strings.Join(r.Notes, "\n"), "ComfyUI does not read alpha from metadata")
	r = inspect(t, golden.Path("lora", "lokr.safetensors"))
	for _, m := range r.Modules {
		require.Equal(t, "lokr", m.Kind)
	}
	r = inspect(t, golden.Path("tiny-dev", "ae.safetensors"))
	require.Contains(t, strings.Join(r.Notes, "\n"), "belong to no adapter")
	require.Contains(t, strings.Join(r.Notes, "\n"), "there is no adapter in it")
}

// ‖s·B·A‖ without making B·A.
func TestNorm(t *testing.T) {
	path := pairFile(t, []float32{1, 2, 3, 4}, []float32{1, 0, 2, -1}) // A, B 2x2
	m := inspect(t, path).Modules[0]
	// B·A = [[1,2],[-1,0]]
	require.InDelta(t, math.Sqrt(6), m.Norm, 1e-9)
	require.InDelta(t, math.Sqrt(30), m.NormA, 1e-9)
	require.Equal(t, 1.0, m.Scale)

	path = pairFile(t, []float32{1, float32(math.NaN()), 3, 4}, []float32{1, 0, 2, -1})
	r := inspect(t, path)
	require.Equal(t, 1, r.Modules[0].NonFinite)
	require.Contains(t, r.Notes[0], "not finite")
}

func pairFile(t testing.TB, a, b []float32, more ...safetensors.Out) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "a.safetensors"))
	require.NoError(t, err)
	outs := append(more,
		safetensors.OutF32("diffusion_model.single_blocks.0.linear1.lora_A.weight", a, 2, 2),
		safetensors.OutF32("diffusion_model.single_blocks.0.linear1.lora_B.weight", b, 2, 2))
	_, err = safetensors.Write(f, map[string]string{modelHashKey: "0x00"}, outs)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return f.Name()
}

func TestInspectRefuses(t *testing.T) {
	v := []float32{1, 2, 3, 4}
	for name, c := range map[string]struct {
		more safetensors.Out
		want string
	}{
		"half a pair": {safetensors.OutF32("diffusion_model.x.lora_A.weight", v, 2, 2), "x: one half"},
		"twice":       {safetensors.OutF32("lora_unet_single_blocks.0.linear1.lora_down.weight", v, 2, 2), "are both the A of"},
		"alpha":       {safetensors.OutF32("diffusion_model.single_blocks.0.linear1.alpha", v, 4), "alpha has shape"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Inspect(pairFile(t, v, v, c.more))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := Inspect(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// What Write writes is as Inspect should find it.
func TestInspectOurs(t *testing.T) {
	st := stateOf(t, openFile(t, golden.Path("lora", "bfl_lora_ab.safetensors")), "diffusion_model.")
	for _, layout := range Layouts {
		f, _ := write(t, Options{Layout: layout, DType: "bf16", Name: "x"}, st)
		r := inspect(t, f.Path())
		require.Equal(t, layout, r.Layout)
		require.Equal(t, []string{"bf16"}, r.DTypes)
		require.Empty(t, r.Notes)
		for _, m := range r.Modules {
			require.Equal(t, 1.0, m.Scale, m.Name)
		}
	}
}
