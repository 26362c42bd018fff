package flow

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func defaults() Timesteps {
	return Timesteps{Type: Weighted, ContentOrStyle: Balanced, Max: Steps - 1, LogitStd: 1, ModeScale: 1.29}
}

func TestIndexRules(t *testing.T) {
	almost := math.Nextafter(1, 0)
	for _, c := range []struct {
		name, rule string
		lo, hi     int
		u          float64
		want       int
	}{
		{"balanced starts at 0", Balanced, 0, 999, 0, 0},
		{"balanced never takes 999", Balanced, 0, 999, almost, 998},
		{"balanced middle", Balanced, 0, 999, 0.5, 499},
		{"balanced bounds", Balanced, 100, 200, almost, 199},
		{"balanced single", Balanced, 300, 300, 0.7, 300},
		{"content is the cube", Content, 0, 999, 0.5, 125},
		{"content ends at 999", Content, 0, 999, almost, 999},
		{"content starts at 0", Content, 0, 999, 0, 0},
		{"style mirrors the cube", Style, 0, 999, 0.5, 875},
		{"style at 0 is clamped", Style, 0, 999, 0, 999},
		{"style reaches 0", Style, 0, 999, almost, 0},
		{"content within bounds", Content, 100, 600, almost, 600},
		{"style within bounds", Style, 100, 600, almost, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			ts := Timesteps{Type: Linear, ContentOrStyle: c.rule, Min: c.lo, Max: c.hi}
			if got := ts.Index(c.u); got != c.want {
				t.Errorf("Index(%v) = %d, want %d", c.u, got, c.want)
			}
		})
	}
}

func TestIndexStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.IntRange(0, Steps-1).Draw(t, "min")
		ts := Timesteps{
			ContentOrStyle: rapid.SampledFrom([]string{Balanced, Content, Style}).Draw(t, "rule"),
			Min:            lo, Max: rapid.IntRange(lo, Steps-1).Draw(t, "max"),
		}
		if i := ts.Index(rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "u")); i < ts.Min || i > ts.Max {
			t.Fatalf("index %d outside %d..%d", i, ts.Min, ts.Max)
		}
	})
}

// The facts that the specification states of the table.
func TestWeightTable(t *testing.T) {
	sum, top, low := 0.0, 0, 0
	for i := range Steps {
		sum += Weight(i)
		if Weight(i) > Weight(top) {
			top = i
		}
		if Weight(i) < Weight(low) {
			low = i
		}
	}
	if math.Abs(sum/Steps-1) > 1e-12 {
		t.Errorf("mean %v", sum/Steps)
	}
	if top < 115 || top > 135 || math.Abs(Weight(top)-1.5227) > 0.006 {
		t.Errorf("greatest weight %v at %d, want 1.5227 at 124", Weight(top), top)
	}
	if low < 990 || math.Abs(Weight(low)-0.4448) > 0.006 {
		t.Errorf("least weight %v at %d, want 0.4448 at 997", Weight(low), low)
	}
	if got, want := Weight(130)/Weight(120), (weightKnots[6]+weightKnots[7])/2/weightKnots[6]; math.Abs(got-want) > 1e-12 {
		t.Errorf("between two knots: ratio %v, want %v", got, want)
	}
}

func TestDrawTypes(t *testing.T) {
	for _, typ := range append(append([]string{}, tables...), densities...) {
		t.Run(typ, func(t *testing.T) {
			ts := defaults()
			ts.Type = typ
			var mean float64
			const n = 400
			for i := range n {
				l := ts.Draw(42, i, 0, 0, "a.png", 1024)
				if l.Sigma <= 0 || l.Sigma > 1 || l.Index < 0 || l.Index >= Steps || !(l.Weight > 0) {
					t.Fatalf("draw %d: %+v", i, l)
				}
				if l != ts.Draw(42, i, 0, 0, "a.png", 1024) {
					t.Fatalf("draw %d is not repeatable", i)
				}
				mean += l.Sigma / n
			}
			// All but shift are symmetric about one half, or nearly.
			want, tol := 0.5, 0.1
			if typ == Shift {
				want = 0.6
			}
			if math.Abs(mean-want) > tol {
				t.Errorf("mean σ %v, want about %v", mean, want)
			}
		})
	}
}

func TestDrawDependsOnItsNames(t *testing.T) {
	ts := defaults()
	base := ts.Draw(42, 1, 0, 0, "a.png", 256)
	for name, l := range map[string]Level{
		"seed":  ts.Draw(43, 1, 0, 0, "a.png", 256),
		"step":  ts.Draw(42, 2, 0, 0, "a.png", 256),
		"micro": ts.Draw(42, 1, 1, 0, "a.png", 256),
		"item":  ts.Draw(42, 1, 0, 1, "a.png", 256),
		"id":    ts.Draw(42, 1, 0, 0, "b.png", 256),
	} {
		if l == base {
			t.Errorf("another %s gives the same draw", name)
		}
	}
}

// Under sigmoid the table is one for all samples of a step, and falls.
func TestSigmoidTable(t *testing.T) {
	a := sigmoidTable(1, 5)
	for i := 1; i < Steps; i++ {
		if a[i] > a[i-1] {
			t.Fatalf("entry %d rises", i)
		}
	}
	if b := sigmoidTable(1, 6); b[500] == a[500] {
		t.Error("the table is not drawn anew")
	}
	if math.Abs(a[500]-0.5) > 0.06 {
		t.Errorf("median %v", a[500])
	}
}

func TestShift(t *testing.T) {
	for tokens, want := range map[int]float64{256: 0.5, 1024: 0.63, 4096: 1.15} {
		if got := TokenShift(tokens); math.Abs(got-want) > 1e-12 {
			t.Errorf("μ of %d tokens = %v, want %v", tokens, got, want)
		}
	}
	if got, want := TimeShift(1.15, 0.5), math.Exp(1.15)/(math.Exp(1.15)+1); math.Abs(got-want) > 1e-15 {
		t.Errorf("shift of one half = %v, want %v", got, want)
	}
	if got := TimeShift(1.15, 1); got != 1 {
		t.Errorf("shift of pure noise = %v", got)
	}
}

func TestFaults(t *testing.T) {
	if f := defaults().Faults(); len(f) != 0 {
		t.Errorf("defaults have faults %v", f)
	}
	bad := Timesteps{Type: "sigmiod", ContentOrStyle: "both", Min: -1, Max: 1000}
	for _, key := range []string{"timestep_type", "content_or_style", "min_denoising_steps", "max_denoising_steps", "logit_std"} {
		if bad.Faults()[key] == "" {
			t.Errorf("no fault for %s", key)
		}
	}
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		ts := defaults()
		ts.LogitMean, ts.LogitStd, ts.ModeScale = v, v, v
		for _, key := range []string{"logit_mean", "logit_std", "mode_scale"} {
			if ts.Faults()[key] == "" {
				t.Errorf("no fault for %s of %v", key, v)
			}
		}
	}
}
