package golden

import (
	"math"
	"testing"
)

// Near fails the test unless every element of got is within tol of want's,
// relative to the largest magnitude in want. A NaN on either side fails it, and
// so does nothing to compare.
func Near(t testing.TB, name string, got, want []float32, tol float64) {
	t.Helper()
	sameLength(t, name, got, want)
	var off, largest float64
	at := 0
	for i, w := range want {
		largest = max(largest, math.Abs(float64(w)))
		if d := math.Abs(float64(got[i]) - float64(w)); !(d <= off) {
			off, at = d, i
		}
	}
	if !(off <= tol*largest) {
		t.Errorf("%s: element %d is %v, want %v: off by %.3g of the largest magnitude %.3g", name, at, got[at], want[at], off/largest, largest)
	}
}

// NearL2 fails the test unless the L2 norm of the difference is within tol of
// want's.
func NearL2(t testing.TB, name string, got, want []float32, tol float64) {
	t.Helper()
	sameLength(t, name, got, want)
	var diff, norm float64
	for i, w := range want {
		d := float64(got[i]) - float64(w)
		diff += d * d
		norm += float64(w) * float64(w)
	}
	if !(math.Sqrt(diff) <= tol*math.Sqrt(norm)) {
		t.Errorf("%s: relative L2 distance %.3g", name, math.Sqrt(diff/norm))
	}
}

func sameLength(t testing.TB, name string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%s: %d elements, want %d", name, len(got), len(want))
	}
}
