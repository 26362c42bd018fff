package flow

import (
	"math"
	"testing"

	"longship/internal/golden"
)

func TestDensitiesMatchReference(t *testing.T) {
	f := golden.Open(t, "golden", "densities.safetensors")
	scale := f.Number("mode_scale")
	for _, scheme := range densities {
		t.Run(scheme, func(t *testing.T) {
			raw, _ := f.F32(scheme + ".raw")
			u, _ := f.F32(scheme + ".u")
			sigma, _ := f.F32(scheme + ".sigma")
			weight, _ := f.F32(scheme + ".weight")
			idx, _ := f.I64(scheme + ".idx")
			for i := range raw {
				near(t, "u", Density(scheme, float64(raw[i]), scale), float64(u[i]))
				if got := DensityIndex(float64(u[i])); int64(got) != idx[i] {
					t.Errorf("index of %v = %d, want %d", u[i], got, idx[i])
				}
				near(t, "σ", linear(int(idx[i])), float64(sigma[i]))
				near(t, "weight", DensityWeight(scheme, linear(int(idx[i]))), float64(weight[i]))
			}
		})
	}
}

// The mode density passes 1 by rounding; its index must not pass the table. A
// float32 that is a little below 0.839 counts as 839 thousandths.
func TestDensityIndexIsClamped(t *testing.T) {
	below := float64(float32(0.839)) // 0.83899998…
	for u, want := range map[float64]int{-1e-9: 0, 0: 0, 0.8389: 838, below: 839, 0.9999: 999, 1: 999, 1.001: 999} {
		if got := DensityIndex(u); got != want {
			t.Errorf("index of %v = %d, want %d", u, got, want)
		}
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-6*max(1, math.Abs(want))) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}
