package ops

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestExp32(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float32Range(-110, 95).Draw(t, "x")
		want := math.Exp(float64(x))
		got := exp32(x)
		if want > math.MaxFloat32 {
			require.True(t, math.IsInf(float64(got), 1))
			return
		}
		ulp := float64(math.Nextafter32(float32(want), float32(math.Inf(1))) - float32(want))
		require.InDelta(t, want, float64(got), 2*ulp)
	})
	require.Equal(t, float32(1), exp32(0))
	require.Zero(t, exp32(minusInf))
	require.True(t, math.IsInf(float64(exp32(-minusInf)), 1))
	nan := float32(math.NaN())
	require.True(t, math.IsNaN(float64(exp32(nan))))
}

// Nearest agrees with a search of the whole table for any number.
func TestNearestCode(t *testing.T) {
	for _, c := range []*Code{SignedCode(), UnsignedCode()} {
		rapid.Check(t, func(t *rapid.T) {
			x := math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
			if rapid.Bool().Draw(t, "a middle") {
				x = c.middle[rapid.IntRange(0, 254).Draw(t, "i")]
			}
			if math.IsNaN(float64(x)) {
				return
			}
			want := 0
			for _, m := range c.middle {
				if m < x {
					want++
				}
			}
			require.EqualValues(t, want, c.Nearest(x), "%g", x)
		})
	}
}
