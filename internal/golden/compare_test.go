package golden_test

import (
	"math"
	"testing"

	"longship/internal/golden"
)

// recorder is a testing.TB that notes a failure instead of failing.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Fatalf(string, ...any) { r.failed = true; panic(r) }

func fails(compare func(t testing.TB)) (failed bool) {
	r := &recorder{}
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
		failed = r.failed
	}()
	compare(r)
	return
}

func TestComparisonsCanFail(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, c := range map[string]struct {
		got, want []float32
		near, l2  bool // it passes
	}{
		"equal":                      {[]float32{1, -2}, []float32{1, -2}, true, true},
		"within both":                {[]float32{100.05, 0}, []float32{100, 0}, true, true},
		"within neither":             {[]float32{100.2, 0}, []float32{100, 0}, false, false},
		"many small, by L2 too much": {[]float32{1.0009, 0.0009, 0.0009, 0.0009}, []float32{1, 0, 0, 0}, true, false},
		"zero wanted":                {[]float32{0, 1e-30}, []float32{0, 0}, false, false},
		"zero":                       {[]float32{0}, []float32{0}, true, true},
		"NaN where a number is":      {[]float32{1, nan}, []float32{1, 1}, false, false},
		"NaN wanted":                 {[]float32{1, 1}, []float32{1, nan}, false, false},
		"both NaN":                   {[]float32{nan}, []float32{nan}, false, false},
		"infinite":                   {[]float32{1, inf}, []float32{1, 1}, false, false},
		"another length":             {[]float32{1}, []float32{1, 1}, false, false},
		"nothing":                    {nil, nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := !fails(func(t testing.TB) { golden.Near(t, "", c.got, c.want, 1e-3) }); got != c.near {
				t.Errorf("Near passes: %v, want %v", got, c.near)
			}
			if got := !fails(func(t testing.TB) { golden.NearL2(t, "", c.got, c.want, 1e-3) }); got != c.l2 {
				t.Errorf("NearL2 passes: %v, want %v", got, c.l2)
			}
		})
	}
}

func TestTokensArePacked(t *testing.T) {
	f := golden.Open(t, "golden", "vae.safetensors")
	got, _ := f.Tokens("normalised")
	want, _ := f.F32("packed")
	golden.Near(t, "packed", got, want, 0)
}
