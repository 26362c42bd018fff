package blas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// spread runs the pieces of a loop on n goroutines.
type spread int

func (s spread) For(n, grain int, body func(lo, hi int)) {
	var wg sync.WaitGroup
	for g := range int(s) {
		wg.Go(func() {
			for lo := g * grain; lo < n; lo += int(s) * grain {
				body(lo, min(lo+grain, n))
			}
		})
	}
	wg.Wait()
}

func random(r *rand.Rand, rows, cols, stride, skip int) Matrix {
	m := Matrix{Data: make([]float32, skip+rows*stride+4)[skip:], Rows: rows, Cols: cols, Stride: stride}
	for i := range m.Data {
		m.Data[i] = float32(r.NormFloat64())
	}
	return m
}

func (m Matrix) at(i, j int) float64 {
	if m.Trans {
		i, j = j, i
	}
	return float64(m.Data[i*m.Stride+j])
}

// Every combination of sizes, forms, strides and alignments agrees with sums in float64.
func TestGemmAgreesWithFloat64(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.IntRange(1, 40), rapid.IntRange(60, 70))
		m, n, k := size.Draw(t, "m"), size.Draw(t, "n"), rapid.OneOf(size, rapid.Just(depth+8)).Draw(t, "k")
		gap := rapid.IntRange(0, 5)
		skip := rapid.IntRange(0, 3)
		r := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed")))
		form := func(rows, cols int, name string) Matrix {
			trans := rapid.Bool().Draw(t, name+" transposed")
			if trans {
				rows, cols = cols, rows
			}
			x := random(r, rows, cols, cols+gap.Draw(t, name+" gap"), skip.Draw(t, name+" skip"))
			x.Trans = trans
			return x
		}
		a, b := form(m, k, "a"), form(k, n, "b")
		c := random(r, m, n, n+gap.Draw(t, "c gap"), skip.Draw(t, "c skip"))
		alpha := float32(rapid.SampledFrom([]float64{1, -0.5}).Draw(t, "alpha"))
		beta := float32(rapid.SampledFrom([]float64{0, 1, 0.25}).Draw(t, "beta"))
		before := Matrix{Data: append([]float32(nil), c.Data...), Rows: m, Cols: n, Stride: c.Stride}
		if beta == 0 {
			for i := range m {
				for j := range n {
					c.Data[i*c.Stride+j] = float32(math.NaN())
				}
			}
		}
		Gemm(spread(3), alpha, a, b, beta, c)
		for i := range m {
			for j := range c.Stride {
				got := float64(c.Data[i*c.Stride+j])
				if j >= n {
					require.Equal(t, before.Data[i*c.Stride+j], c.Data[i*c.Stride+j], "between rows")
					continue
				}
				var sum, abs float64
				for p := range k {
					v := a.at(i, p) * b.at(p, j)
					sum += v
					abs += math.Abs(v)
				}
				want := float64(alpha)*sum + float64(beta)*before.at(i, j)
				require.InDelta(t, want, got, 1e-6*(abs+1), "(%d,%d)", i, j)
			}
		}
	})
}

func TestGemmPropagatesNonFinite(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1))} {
		for form := range 4 {
			a, b := random(r, 70, 70, 72, 0), random(r, 70, 70, 72, 0)
			clear(a.Data)
			b.Data[5*b.Stride+5] = bad
			a.Trans, b.Trans = form&1 != 0, form&2 != 0
			c := random(r, 70, 70, 70, 0)
			Gemm(Serial{}, 1, a, b, 0, c)
			for i := range 70 {
				require.True(t, math.IsNaN(c.at(i, 5)), "0 x %v must not be 0 (form %d)", bad, form)
				require.Zero(t, c.at(i, 4))
			}
		}
	}
}

// The bits depend neither on the number of goroutines nor on where the operands lie.
func TestGemmBits(t *testing.T) {
	for form := range 4 {
		r := rand.New(rand.NewPCG(1, uint64(form)))
		a, b := random(r, 150, 150, 153, 0), random(r, 150, 150, 153, 0)
		a.Trans, b.Trans = form&1 != 0, form&2 != 0
		want := Matrix{Data: make([]float32, 150*150), Rows: 150, Cols: 150, Stride: 150}
		Gemm(Serial{}, 1, a, b, 0, want)
		for _, workers := range []int{2, 7} {
			for skip := range 4 {
				move := func(m Matrix) Matrix {
					m.Data = append(make([]float32, skip), m.Data...)[skip:]
					return m
				}
				got := Matrix{Data: make([]float32, 150*150), Rows: 150, Cols: 150, Stride: 150}
				Gemm(spread(workers), 1, move(a), move(b), 0, got)
				require.Equal(t, want.Data, got.Data, "form %d, %d workers, skip %d", form, workers, skip)
			}
		}
	}
}

func TestLibraryIsNamed(t *testing.T) {
	name, err := Library()
	require.NoError(t, err)
	require.NotEmpty(t, name)
}

func BenchmarkGemm(b *testing.B) {
	for _, s := range []struct{ m, n, k int }{{512, 512, 512}, {768, 1152, 128}, {768, 128, 512}, {768, 16, 1152}, {768, 1152, 16}, {1, 3072, 1024}, {1024, 3072, 3072}} {
		for form, name := range []string{"NN", "TN", "NT", "TT"} {
			b.Run(fmt.Sprintf("%s/%dx%dx%d", name, s.m, s.n, s.k), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 2))
				x, y := random(r, s.m, s.k, s.k, 0), random(r, s.k, s.n, s.n, 0)
				if form&1 != 0 {
					x = random(r, s.k, s.m, s.m, 0).T()
				}
				if form&2 != 0 {
					y = random(r, s.n, s.k, s.k, 0).T()
				}
				c := random(r, s.m, s.n, s.n, 0)
				for b.Loop() {
					Gemm(spread(runtime.GOMAXPROCS(0)), 1, x, y, 0, c)
				}
				b.ReportMetric(2*float64(s.m)*float64(s.n)*float64(s.k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
