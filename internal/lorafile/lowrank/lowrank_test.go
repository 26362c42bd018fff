package lowrank

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/mat"

	"longship/gpu/blas"
)

// spectrum makes factors whose product has about the given singular values.
func spectrum(in, out, rank int, value func(j int) float64) (a, b []float32) {
	r := rand.New(rand.NewPCG(1, 2))
	a, b = make([]float32, rank*in), make([]float32, out*rank)
	for i := range rank {
		for j := range in {
			a[i*in+j] = float32(r.NormFloat64() / math.Sqrt(float64(in)))
		}
		for j := range out {
			b[j*rank+i] = float32(r.NormFloat64() / math.Sqrt(float64(out)) * value(i))
		}
	}
	return a, b
}

// errorOf returns ‖B·A − B'·A'‖, and the least that any pair of rank k leaves.
func errorOf(t *testing.T, a, b []float32, in, out, rank int, res Result) (got, best float64) {
	full := product(blas.Matrix{Data: b, Rows: out, Cols: rank, Stride: rank}, blas.Matrix{Data: a, Rows: rank, Cols: in, Stride: in})
	wide := mat.NewDense(out, in, nil)
	less := product(blas.Matrix{Data: res.B, Rows: out, Cols: res.Rank, Stride: res.Rank}, blas.Matrix{Data: res.A, Rows: res.Rank, Cols: in, Stride: in})
	for i, v := range full.Data {
		wide.RawMatrix().Data[i] = float64(v)
		got += math.Pow(float64(v)-float64(less.Data[i]), 2)
	}
	var svd mat.SVD
	require.True(t, svd.Factorize(wide, mat.SVDNone))
	for i, s := range svd.Values(nil) {
		if i >= res.Rank {
			best += s * s
		}
	}
	return math.Sqrt(got), math.Sqrt(best)
}

// The error is within 1 % of the exact SVD's, whatever the spectrum, both ways
// round, on the exact way and in the subspace.
func TestErrorIsThatOfTheExactSVD(t *testing.T) {
	for name, value := range map[string]func(j int) float64{
		"flat":   func(int) float64 { return 1 },
		"slow":   func(j int) float64 { return math.Pow(float64(j+1), -0.5) },
		"fast":   func(j int) float64 { return math.Pow(float64(j+1), -1.5) },
		"steep":  func(j int) float64 { return math.Exp(-float64(j) / 20) },
		"a step": func(j int) float64 { return 1 + 9*max(0, math.Copysign(1, 20-float64(j))) },
	} {
		for _, s := range []struct{ in, out, rank, k int }{{300, 420, 160, 16}, {420, 300, 160, 16}, {200, 260, 40, 8}} {
			t.Run(fmt.Sprintf("%s/%d", name, s.rank), func(t *testing.T) {
				a, b := spectrum(s.in, s.out, s.rank, value)
				res, err := Truncate(a, b, s.in, s.out, s.rank, Want{Rank: s.k})
				require.NoError(t, err)
				require.Equal(t, s.k, res.Rank)
				require.Equal(t, s.rank <= exactRank, res.Exact)
				got, best := errorOf(t, a, b, s.in, s.out, s.rank, res)
				require.LessOrEqual(t, got, 1.01*best)
				require.InDelta(t, 1-best*best/res.Total, res.Kept, 0.02)
			})
		}
	}
}

func TestEnergy(t *testing.T) {
	for _, rank := range []int{60, 200} {
		a, b := spectrum(260, 400, rank, func(j int) float64 { return math.Exp(-float64(j) / 6) })
		res, err := Truncate(a, b, 260, 400, rank, Want{Energy: 0.95})
		require.NoError(t, err)
		require.GreaterOrEqual(t, res.Kept, 0.95)
		less := 0.0
		for _, s := range res.Values[:res.Rank-1] {
			less += s * s
		}
		require.Less(t, less/res.Total, 0.95, "a smaller rank would do")
		got, _ := errorOf(t, a, b, 260, 400, rank, res)
		require.InDelta(t, 1-res.Kept, got*got/res.Total, 0.01)
	}
}

func TestZero(t *testing.T) {
	for _, rank := range []int{4, 200} {
		res, err := Truncate(make([]float32, rank*300), make([]float32, 250*rank), 300, 250, rank, Want{Rank: 2})
		require.NoError(t, err)
		require.Len(t, res.A, res.Rank*300)
		require.Len(t, res.B, 250*res.Rank)
		require.Equal(t, 1.0, res.Kept)
	}
}
