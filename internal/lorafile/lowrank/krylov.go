package lowrank

import (
	"errors"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/mat"

	"longship/gpu/blas"
)

// krylov holds C = b·a as an operator, so turned that its columns are the
// shorter side: basis vectors live there and are orthogonalised there.
type krylov struct {
	a, b blas.Matrix // [rank, n], [m, rank]
	flip bool        // C is the transpose of the product asked for
	rnd  *rand.Rand
	v, w [][]float32 // orthonormal vectors of n, and C times each
}

func (k *krylov) n() int {
	if k.a.Trans {
		return k.a.Rows
	}
	return k.a.Cols
}

func dense(rows, cols int) blas.Matrix {
	return blas.Matrix{Data: make([]float32, rows*cols), Rows: rows, Cols: cols, Stride: cols}
}

// product returns x·m.
func product(x, m blas.Matrix) blas.Matrix {
	cols := m.Cols
	if m.Trans {
		cols = m.Rows
	}
	rows := x.Rows
	if x.Trans {
		rows = x.Cols
	}
	c := dense(rows, cols)
	blas.Gemm(cores{}, 1, x, m, 0, c)
	return c
}

// forward returns C times each row of x; backward Cᵀ times each row.
func (k *krylov) forward(x blas.Matrix) blas.Matrix  { return product(product(x, k.a.T()), k.b.T()) }
func (k *krylov) backward(y blas.Matrix) blas.Matrix { return product(product(y, k.b), k.a) }

func (k *krylov) gaussian(rows int) blas.Matrix {
	x := dense(rows, k.n())
	for i := range x.Data {
		x.Data[i] = float32(k.rnd.NormFloat64())
	}
	return x
}

func stack(rows [][]float32) blas.Matrix {
	m := dense(len(rows), len(rows[0]))
	for i, r := range rows {
		copy(m.Data[i*m.Stride:], r)
	}
	return m
}

// deflate takes the basis' part out of the rows of x.
func (k *krylov) deflate(x blas.Matrix) {
	if len(k.v) == 0 {
		return
	}
	v := stack(k.v)
	blas.Gemm(cores{}, -1, product(x, v.T()), v, 1, x)
}

// extend adds the rows of x to the basis, orthonormalised, and returns those
// that were new in it.
func (k *krylov) extend(x blas.Matrix) [][]float32 {
	k.deflate(x)
	k.deflate(x)
	var fresh [][]float32
	for i := range x.Rows {
		row := x.Data[i*x.Stride : i*x.Stride+x.Cols]
		before := math.Sqrt(dot(row, row))
		for range 2 {
			for _, f := range fresh {
				c := float32(dot(row, f))
				for j, y := range f {
					row[j] -= c * y
				}
			}
		}
		after := math.Sqrt(dot(row, row))
		if after <= 1e-5*before || after == 0 {
			continue
		}
		for j := range row {
			row[j] = float32(float64(row[j]) / after)
		}
		fresh = append(fresh, row)
	}
	k.v = append(k.v, fresh...)
	return fresh
}

func dot(x, y []float32) (s float64) {
	for i, v := range x {
		s += float64(v) * float64(y[i])
	}
	return s
}

// run grows the subspace until it is wide enough for the rank, or until it keeps
// the energy with as much to spare.
func (k *krylov) run(top int, energy float64) (Result, error) {
	limit := min(width(top), rankOf(k.a), k.n())
	block := min(64, max(8, (top/4+3)/4*4))
	goal := limit
	if energy > 0 {
		block, goal = 32, min(limit, width(32))
	}
	x := k.backward(k.forward(k.gaussian(min(block, limit))))
	for {
		for len(k.v) < goal && x.Rows > 0 {
			x.Rows = min(x.Rows, goal-len(k.v))
			fresh := k.extend(x)
			if len(fresh) == 0 {
				break
			}
			y := k.forward(stack(fresh))
			for i := range y.Rows {
				k.w = append(k.w, y.Data[i*y.Stride:i*y.Stride+y.Cols])
			}
			if len(k.v) < limit {
				x = k.backward(y)
			}
		}
		res, enough, err := k.ritz(top, energy, len(k.v) < goal || goal == limit)
		if err != nil || enough {
			return res, err
		}
		goal = min(limit, 2*goal)
	}
}

func rankOf(a blas.Matrix) int {
	if a.Trans {
		return a.Cols
	}
	return a.Rows
}

// ritz computes the best approximation inside the subspace. enough says whether
// it is what was wanted; last takes it as it is.
func (k *krylov) ritz(top int, energy float64, last bool) (Result, bool, error) {
	m := len(k.v)
	if m == 0 { // the product is zero
		n := k.n()
		other := k.b.Rows
		if k.b.Trans {
			other = k.b.Cols
		}
		if k.flip {
			n, other = other, n
		}
		return Result{A: make([]float32, n), B: make([]float32, other), Rank: 1, Kept: 1, Values: []float64{0}, Exact: true}, true, nil
	}
	w := stack(k.w)
	gram := mat.NewSymDense(m, nil)
	const piece = 4096 // sums of longer runs are made in float64
	for lo := 0; lo < w.Cols; lo += piece {
		part := blas.Matrix{Data: w.Data[lo:], Rows: m, Cols: min(piece, w.Cols-lo), Stride: w.Stride}
		g := product(part, part.T())
		for i := range m {
			for j := i; j < m; j++ {
				gram.SetSym(i, j, gram.At(i, j)+float64(g.Data[i*m+j]))
			}
		}
	}
	var eig mat.EigenSym
	if !eig.Factorize(gram, true) {
		return Result{}, false, errors.New("lowrank: the eigenvalues of the subspace did not converge")
	}
	var vectors mat.Dense
	eig.VectorsTo(&vectors)
	ascending := eig.Values(nil)
	values := make([]float64, m)
	captured := 0.0
	for i := range m {
		square := max(0, ascending[m-1-i])
		values[i] = math.Sqrt(square)
		captured += square
	}
	rest := k.residual()
	res := Result{Values: values, Total: captured + rest}
	res.Rank = max(1, choose(values, res.Total, energy, top))
	kept := 0.0
	for _, s := range values[:res.Rank] {
		kept += s * s
	}
	res.Kept = share(kept, res.Total)
	if energy > 0 && !last && (res.Kept < energy || width(res.Rank) > m) {
		return res, false, nil
	}
	e := dense(res.Rank, m) // rows are the vectors of the largest values
	for i := range res.Rank {
		for j := range m {
			e.Data[i*m+j] = float32(vectors.At(j, m-1-i))
		}
	}
	v, y := product(e, stack(k.v)), product(e, w)
	for i := range res.Rank {
		root := math.Sqrt(values[i])
		for j := range v.Cols {
			v.Data[i*v.Stride+j] *= float32(root)
		}
		for j := range y.Cols {
			if root > 0 {
				y.Data[i*y.Stride+j] = float32(float64(y.Data[i*y.Stride+j]) / root)
			}
		}
	}
	if k.flip {
		v, y = y, v
	}
	res.A, res.B = v.Data, make([]float32, y.Cols*res.Rank)
	for i := range res.Rank {
		for j := range y.Cols {
			res.B[j*res.Rank+i] = y.Data[i*y.Stride+j]
		}
	}
	return res, true, nil
}

// probes is how many random vectors the energy outside the subspace is estimated from.
const probes = 16

// residual estimates the squared norm of C outside the subspace (Hutchinson 1990).
func (k *krylov) residual() float64 {
	x := k.gaussian(probes)
	k.deflate(x)
	y := k.forward(x)
	return dot(y.Data, y.Data) / probes
}
