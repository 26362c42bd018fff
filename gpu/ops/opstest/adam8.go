package opstest

import (
	"math"
	"testing"

	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// SameCodes fails the test unless got are the 8-bit codes wanted. Where the value
// that is coded, x(i) by its block's absolute maximum, lies within 1e-6 of the
// middle between two codes either of them will do.
func SameCodes(t testing.TB, name string, got []byte, want []int64, c *ops.Code, x func(i int) float64) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%s: %d codes, want %d", name, len(got), len(want))
	}
	for i, w := range want {
		g := int64(got[i])
		if g == w {
			continue
		}
		middle := (float64(c.Value[min(g, w)]) + float64(c.Value[max(g, w)])) / 2
		if d := g - w; (d != 1 && d != -1) || !(math.Abs(x(i)-middle) <= 1e-6) {
			t.Fatalf("%s[%d] is code %d, want %d (value %.9g, middle %.9g)", name, i, g, w, x(i), middle)
		}
	}
}

// Adam8Moments returns the moments of the step to come, before they are coded:
// from the codes and maxima that k has on the host, and the gradients g. A
// gradient that is not finite has none.
func Adam8Moments(k ops.AdamW8, g []float32) (m, v []float64) {
	mcode, vcode := tensor.Host[byte](k.MCode), tensor.Host[byte](k.VCode)
	mmax, vmax := k.MMax.Float32s(), k.VMax.Float32s()
	m, v = make([]float64, len(g)), make([]float64, len(g))
	for i, x := range g {
		gi, b := float64(x), i/ops.Adam8Block
		if math.IsNaN(gi) || math.IsInf(gi, 0) {
			continue
		}
		m[i] = k.Adam.Beta1*float64(ops.SignedCode().Value[mcode[i]]*mmax[b]) + (1-k.Adam.Beta1)*gi
		v[i] = k.Adam.Beta2*float64(ops.UnsignedCode().Value[vcode[i]]*vmax[b]) + (1-k.Adam.Beta2)*gi*gi
	}
	return m, v
}
