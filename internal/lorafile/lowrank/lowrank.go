// Package lowrank finds the best approximation of lower rank of a product B·A
// without ever forming it. Functions may be called from any goroutine.
//
// Small ranks take the exact way: thin QR of B and Aᵀ and the SVD of the small
// core, in float64. Large ones take a block Krylov subspace of (B·A)ᵀ(B·A) with
// full reorthogonalisation and the Rayleigh-Ritz step in it (Musco & Musco 2015,
// "Randomized block Krylov methods"), three times as wide as the rank wanted.
package lowrank

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"

	"gonum.org/v1/gonum/lapack/lapack64"
	"gonum.org/v1/gonum/mat"

	"longship/gpu/blas"
)

// Result is B·A of lower rank: the singular values are shared out evenly between
// the factors.
type Result struct {
	A, B   []float32 // [Rank, in], [out, Rank]
	Rank   int
	Kept   float64 // share of the squared Frobenius norm that is kept
	Total  float64 // squared Frobenius norm of the whole product
	Values []float64
	Exact  bool // Kept and Total are exact, not estimated from random probes
}

// Want says how far to go: to a rank, or to the least rank that keeps a share
// of the energy (and is at most Rank, where that is not 0).
type Want struct {
	Rank   int
	Energy float64 // 0 to 1; 0 asks for Rank alone
}

// exactRank is the rank up to which the exact way is taken.
const exactRank = 128

// Truncate approximates b·a, where a is [rank, in] and b [out, rank], row-major.
// Values must be finite.
func Truncate(a, b []float32, in, out, rank int, want Want) (Result, error) {
	if len(a) != rank*in || len(b) != out*rank || rank == 0 {
		return Result{}, fmt.Errorf("lowrank: %d and %d values are no pair of rank %d on [%d %d]", len(a), len(b), rank, out, in)
	}
	ka := blas.Matrix{Data: a, Rows: rank, Cols: in, Stride: in}
	kb := blas.Matrix{Data: b, Rows: out, Cols: rank, Stride: rank}
	top := min(rank, in, out)
	if want.Rank > 0 {
		top = min(top, want.Rank)
	}
	if rank <= exactRank || in < rank || out < rank || rank <= 512 && width(top) >= rank {
		return exact(ka, kb, top, want.Energy)
	}
	k := &krylov{a: ka, b: kb, rnd: rand.New(rand.NewPCG(0x6c6f7261, uint64(in)<<32|uint64(out)))}
	if k.flip = in > out; k.flip {
		k.a, k.b = kb.T(), ka.T()
	}
	return k.run(top, want.Energy)
}

// width is the size of the subspace for a rank.
func width(k int) int { return 3*k + 16 }

// choose returns the least rank whose squared values add up to the share.
func choose(values []float64, total, energy float64, top int) int {
	if energy <= 0 {
		return min(top, len(values))
	}
	sum := 0.0
	for i, s := range values {
		if i == top {
			break
		}
		if sum += s * s; sum >= energy*total {
			return i + 1
		}
	}
	return min(top, len(values))
}

// exact is thin QR of both factors and an SVD between them.
func exact(a, b blas.Matrix, top int, energy float64) (Result, error) {
	r, in, out := a.Rows, a.Cols, b.Rows
	qb, rb := thinQR(out, r, func(i, j int) float64 { return float64(b.Data[i*r+j]) })
	qa, ra := thinQR(in, r, func(i, j int) float64 { return float64(a.Data[j*in+i]) })
	var core mat.Dense
	core.Mul(rb, ra.T())
	var svd mat.SVD
	if !svd.Factorize(&core, mat.SVDThin) {
		return Result{}, fmt.Errorf("lowrank: the SVD of a core of %d did not converge", r)
	}
	values := svd.Values(nil)
	var u, v mat.Dense
	svd.UTo(&u)
	svd.VTo(&v)
	res := Result{Values: values, Exact: true}
	for _, s := range values {
		res.Total += s * s
	}
	res.Rank = max(1, choose(values, res.Total, energy, top))
	k := res.Rank
	var bu, av mat.Dense
	bu.Mul(qb, u.Slice(0, u.RawMatrix().Rows, 0, k))
	av.Mul(qa, v.Slice(0, v.RawMatrix().Rows, 0, k))
	res.A, res.B = make([]float32, k*in), make([]float32, out*k)
	kept := 0.0
	for j := range k {
		kept += values[j] * values[j]
		root := math.Sqrt(values[j])
		for i := range out {
			res.B[i*k+j] = float32(bu.At(i, j) * root)
		}
		for i := range in {
			res.A[j*in+i] = float32(av.At(i, j) * root)
		}
	}
	res.Kept = share(kept, res.Total)
	return res, nil
}

func share(kept, total float64) float64 {
	if total == 0 {
		return 1
	}
	return min(1, kept/total)
}

// thinQR returns Q [n, min(n,r)] and R of the n x r matrix.
func thinQR(n, r int, at func(i, j int) float64) (q, upper *mat.Dense) {
	m := mat.NewDense(n, r, nil)
	for i := range n {
		row := m.RawRowView(i)
		for j := range row {
			row[j] = at(i, j)
		}
	}
	if n <= r { // no tall matrix: it is its own core
		one := mat.NewDense(n, n, nil)
		for i := range n {
			one.Set(i, i, 1)
		}
		return one, m
	}
	raw := m.RawMatrix()
	tau, work := make([]float64, r), make([]float64, 1)
	lapack64.Geqrf(raw, tau, work, -1)
	work = make([]float64, int(work[0]))
	lapack64.Geqrf(raw, tau, work, len(work))
	upper = mat.NewDense(r, r, nil)
	for i := range r {
		copy(upper.RawRowView(i)[i:], m.RawRowView(i)[i:])
	}
	lapack64.Orgqr(raw, tau, work[:1], -1)
	work = make([]float64, max(int(work[0]), r))
	lapack64.Orgqr(raw, tau, work, len(work))
	return m, upper
}

// cores runs loops on all cores.
type cores struct{}

func (cores) For(n, grain int, body func(lo, hi int)) {
	workers := runtime.GOMAXPROCS(0)
	var wg sync.WaitGroup
	for g := range workers {
		wg.Go(func() {
			for lo := g * grain; lo < n; lo += workers * grain {
				body(lo, min(lo+grain, n))
			}
		})
	}
	wg.Wait()
}
