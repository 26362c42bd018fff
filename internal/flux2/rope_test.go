package flux2_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/flux2"
	"longship/internal/golden"
)

// coordinates returns ids [N, 4], or those of the first item of [B, N, 4].
func coordinates(f *golden.File, name string) [][4]int {
	ids, dims := f.I64(name)
	var out [][4]int
	for i := range dims[len(dims)-2] {
		out = append(out, [4]int{int(ids[4*i]), int(ids[4*i+1]), int(ids[4*i+2]), int(ids[4*i+3])})
	}
	return out
}

func TestPositionsGolden(t *testing.T) {
	f := golden.Open(t, "golden", "primitives.safetensors")
	image, _ := f.Grids("ids.latent")
	require.Len(t, image, 1)
	refs, _ := f.Grids("ids.refs")
	text := coordinates(f, "ids.text")
	s := flux2.Shape{B: 1, H: image[0][0], W: image[0][1], L: len(text), Refs: refs}
	want := append(append(text, coordinates(f, "ids.latent")...), coordinates(f, "ids.refs")...)
	require.Equal(t, want, flux2.Positions(s))
	require.Len(t, want, s.Sequence())
}

// The tables of far positions, for the axes of the released models and of the
// tiny ones, for four axes of one width or of three: each of the reference's is that of
// one of them.
func TestRopeGolden(t *testing.T) {
	f := golden.Open(t, "golden", "primitives.safetensors")
	ids := coordinates(f, "rope.ids")
	configs := []flux2.Config{flux2.Default()}
	for _, dir := range []string{"tiny-dev", "tiny-klein"} {
		text, err := os.ReadFile(golden.Path(dir, "transformer", "config.json"))
		require.NoError(t, err)
		c, err := flux2.ParseConfig(text)
		require.NoError(t, err)
		configs = append(configs, c)
	}
	for _, name := range []string{"rope.real", "rope.tiny"} {
		wantCos, shape := f.F32(name + ".cos")
		wantSin, _ := f.F32(name + ".sin")
		matched := false
		others := []flux2.Config{flux2.Default(), flux2.Default()}
		others[0].HeadDim, others[0].Axes = shape[1], slices.Repeat([]int{shape[1] / 4}, 4)
		others[1].HeadDim, others[1].Axes = 16, []int{2, 4, 6, 4}
		for _, c := range append(others, configs...) {
			if c.HeadDim != shape[1] {
				continue
			}
			c.Theta = flux2.Default().Theta
			cos, sin := flux2.Rope(c, ids)
			matched = matched || within(cos, wantCos) && within(sin, wantSin)
		}
		require.True(t, matched, name)
	}
}

// within says whether all values agree to 1e-6.
func within(got, want []float32) bool {
	for i, w := range want {
		if d := got[i] - w; d > 1e-6 || d < -1e-6 {
			return false
		}
	}
	return len(got) == len(want)
}
