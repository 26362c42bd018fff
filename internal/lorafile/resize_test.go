package lorafile

import (
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/golden"
	"longship/internal/lorafile/lowrank"
)

// At the rank that it has, an adapter stays what it is; below, the report says
// how much is gone.
func TestResize(t *testing.T) {
	for _, from := range goldenLoRAs(t) {
		want := deltas(t, from)
		for _, layout := range AllLayouts {
			o := outputIn(t, layout)
			report, err := Resize(t.Context(), []Weighted{{from, 1}}, o, lowrank.Want{Rank: 1000}, nil)
			require.NoError(t, err, from)
			requireDeltas(t, want, deltas(t, o.Path), 1e-5)
			for _, r := range report {
				require.InDelta(t, 1, r.Kept, 1e-9, r.Module)
			}
		}
	}
	from := golden.Path("lora", "kohya.safetensors")
	o := outputIn(t, Kohya)
	report, err := Resize(t.Context(), []Weighted{{from, 1}}, o, lowrank.Want{Rank: 2}, nil)
	require.NoError(t, err)
	want, got := deltas(t, from), deltas(t, o.Path)
	for _, r := range report {
		require.Equal(t, 2, r.To)
		diff, norm := 0.0, 0.0
		for i, v := range want[r.Module].v {
			d := float64(v - got[r.Module].v[i])
			diff, norm = diff+d*d, norm+float64(v)*float64(v)
		}
		require.InDelta(t, 1-diff/norm, r.Kept, 1e-5, r.Module)
		require.InDelta(t, root(norm), r.Norm, 1e-4*r.Norm)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(o.Path), "*"))
	require.NoError(t, err)
	require.Equal(t, []string{o.Path}, left, "nothing else stays")

	path := filepath.Join(t.TempDir(), "e.png")
	require.NoError(t, PlotResized(path, report))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	_, err = png.Decode(f)
	require.NoError(t, err)

	_, err = Resize(t.Context(), []Weighted{{from, 1}}, outputIn(t, Kohya), lowrank.Want{}, nil)
	require.ErrorContains(t, err, "one of them must be said")
}
