package rng

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The vectors that the authors of Philox publish with Random123 (kat_vectors).
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		name      string
		ctr, want [4]uint32
		key       [2]uint32
	}{
		{"zeros", [4]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, [2]uint32{}},
		{"ones", [4]uint32{^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, [2]uint32{^uint32(0), ^uint32(0)}},
		{"pi", [4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}, [2]uint32{0xa4093822, 0x299f31d0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := philox(c.ctr, c.key); got != c.want {
				t.Errorf("philox(%x, %x) = %x, want %x", c.ctr, c.key, got, c.want)
			}
		})
	}
}

// A run can only be resumed by a later build if names keep their sequences.
func TestSequencesAreForEver(t *testing.T) {
	g := New(42, "train/noise", 7, "a/b.png")
	if got, want := g.Uint64(0), uint64(wantFirst); got != want {
		t.Errorf("first word %#x, want %#x", got, want)
	}
	if got := g.Uint64(1<<40 + 1); got != wantFar {
		t.Errorf("word 2^40+1 %#x, want %#x", got, uint64(wantFar))
	}
	if got := float32(g.Normal(3)); math.Abs(float64(got)-wantNormal) > 1e-6 {
		t.Errorf("normal 3 = %v, want %v", got, wantNormal)
	}
}

func TestNamesAreDistinct(t *testing.T) {
	seen := map[uint64]string{}
	for name, g := range map[string]Gen{
		"seed 1":        New(1, "p"),
		"seed 2":        New(2, "p"),
		"purpose":       New(1, "q"),
		"id 0":          New(1, "p", 0),
		"id 0, 0":       New(1, "p", 0, 0),
		"id string 0":   New(1, "p", "0"),
		"joined":        New(1, "pa", "b"),
		"split":         New(1, "p", "ab"),
		"split further": New(1, "p", "a", "b"),
		"string of nul": New(1, "p", "\x00"),
		"id 1":          New(1, "p", 1),
	} {
		w := g.Uint64(0)
		if other, dup := seen[w]; dup {
			t.Errorf("%s and %s give the same sequence", name, other)
		}
		seen[w] = name
	}
	if New(1, "p", 5) != New(1, "p", uint64(5)) || New(1, "p", 5) != New(1, "p", int64(5)) {
		t.Error("the type of an integer id changes the sequence")
	}
}

func TestUnknownIDPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic for a float id")
		}
	}()
	New(1, "p", 1.5)
}

func TestFillDoesNotDependOnPieces(t *testing.T) {
	fills := map[string]struct {
		fill func(Gen, []float32, uint64)
		at   func(Gen, uint64) float32
	}{
		"normal": {Gen.FillNormal, func(g Gen, i uint64) float32 { return float32(g.Normal(i)) }},
		"uniform": {Gen.FillUniform, func(g Gen, i uint64) float32 {
			var one [1]float32
			g.FillUniform(one[:], i)
			return one[0]
		}},
	}
	for name, f := range fills {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				g := New(rapid.Uint64().Draw(t, "seed"), "test")
				from := rapid.Uint64Range(0, 1<<62).Draw(t, "from")
				n := rapid.IntRange(0, 40).Draw(t, "n")
				whole := make([]float32, n)
				f.fill(g, whole, from)
				cut := rapid.IntRange(0, n).Draw(t, "cut")
				pieces := make([]float32, n)
				f.fill(g, pieces[cut:], from+uint64(cut)) // the later piece first
				f.fill(g, pieces[:cut], from)
				if !slices.Equal(whole, pieces) {
					t.Fatalf("cut at %d: %v, whole %v", cut, pieces, whole)
				}
				for k := range whole {
					if whole[k] != f.at(g, from+uint64(k)) {
						t.Fatalf("element %d differs when drawn alone", k)
					}
				}
			})
		})
	}
}

// Moments, tails and correlation of a million normals. A bound is six standard
// errors of the statistic under the null hypothesis.
func TestNormalLooksNormal(t *testing.T) {
	const n = 1 << 20
	x := make([]float32, n)
	New(3, "stat").FillNormal(x, 0)
	var m1, m2, m3, m4, lag float64
	tail := 0
	for i, v := range x {
		f := float64(v)
		m1 += f
		m2 += f * f
		m3 += f * f * f
		m4 += f * f * f * f
		if i > 0 {
			lag += f * float64(x[i-1])
		}
		if math.Abs(f) > 3 {
			tail++
		}
	}
	se := math.Sqrt(1.0 / n)
	pTail := math.Erfc(3 / math.Sqrt2)
	for _, c := range []struct {
		name             string
		got, want, sigma float64
	}{
		{"mean", m1 / n, 0, se},
		{"variance", m2 / n, 1, math.Sqrt(2) * se},
		{"third moment", m3 / n, 0, math.Sqrt(15) * se},
		{"fourth moment", m4 / n, 3, math.Sqrt(96) * se},
		{"lag 1", lag / n, 0, se},
		{"beyond 3", float64(tail) / n, pTail, math.Sqrt(pTail * (1 - pTail) / n)},
	} {
		if math.Abs(c.got-c.want) > 6*c.sigma {
			t.Errorf("%s = %v, want %v ± %v", c.name, c.got, c.want, 6*c.sigma)
		}
	}
}

// Chi-squared over 256 cells of the top byte, and the same step by step over
// the first word of neighbouring names, which only the hash separates.
func TestUniformity(t *testing.T) {
	const n = 1 << 18
	for name, word := range map[string]func(i int) uint64{
		"elements": func(i int) uint64 { return New(9, "stat").Uint64(uint64(i)) },
		"steps":    func(i int) uint64 { return New(9, "stat", i).Uint64(0) },
	} {
		t.Run(name, func(t *testing.T) {
			var cells [256]int
			ones := 0
			for i := range n {
				w := word(i)
				cells[w>>56]++
				ones += int(w & 1)
			}
			chi := 0.0
			for _, c := range cells {
				d := float64(c) - n/256
				chi += d * d / (n / 256)
			}
			if math.Abs(chi-255) > 6*math.Sqrt(2*255) {
				t.Errorf("chi-squared %v over 255 degrees of freedom", chi)
			}
			if math.Abs(float64(ones)-n/2) > 6*math.Sqrt(n)/2 {
				t.Errorf("%d low bits set of %d", ones, n)
			}
		})
	}
}

func TestPerm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 50).Draw(t, "n")
		p := New(rapid.Uint64().Draw(t, "seed"), "perm").Perm(n)
		slices.Sort(p)
		for i, v := range p {
			if v != i {
				t.Fatalf("not a permutation: %v", p)
			}
		}
	})
	counts := map[[4]int]int{}
	const n = 24000
	for i := range n {
		counts[[4]int(New(uint64(i), "perm").Perm(4))]++
	}
	for p, c := range counts {
		if math.Abs(float64(c)-n/24) > 6*math.Sqrt(n/24) {
			t.Errorf("order %v came %d times in %d", p, c, n)
		}
	}
	if len(counts) != 24 {
		t.Errorf("%d orders of 4 things", len(counts))
	}
}

func TestIntNCoversItsRange(t *testing.T) {
	g, seen := New(5, "intn"), make([]bool, 7)
	for i := range uint64(200) {
		seen[g.IntN(i, len(seen))] = true
	}
	if slices.Contains(seen, false) {
		t.Errorf("values seen: %v", seen)
	}
}

func BenchmarkFillNormal(b *testing.B) {
	x := make([]float32, 1<<14)
	g := New(1, "bench")
	b.SetBytes(int64(len(x)) * 4)
	for b.Loop() {
		g.FillNormal(x, 0)
	}
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		New(42, "train/noise", 1234, 1, "photos/harbour.png@512").Uint64(0)
	}
}

// Recorded once from this implementation.
const (
	wantFirst  = 0xfb555b389a77facb
	wantFar    = 0x903d8494dabc8ae0
	wantNormal = -0.39052343
)
