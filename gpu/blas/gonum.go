package blas

import (
	"runtime/debug"
	"sync"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"longship/gpu"
)

// gonum is fastest by far where it takes dot products of rows (A·Bᵀ): 14
// GFLOP/s a core against 6 for A·B. So both operands are brought into that form,
// packed in pieces of depth where they are not. It calls gonum with tiles below
// gonum's own threshold for goroutines, and keeps nothing transposed whole.
const (
	depth   = 512 // of one dot product; 16 rows of it fit the first cache
	tileM   = 64
	tileN   = 16
	stripN  = 64   // columns of c that one piece of the loop computes
	packedN = 1024 // columns of c for which b is packed at a time
	packedM = 1024 // rows of c for which a is packed at a time
)

var kernel gonum.Implementation

// panel is packed rows, each a 16-byte aligned run along k.
type panel struct{ data []float32 }

var panels = sync.Pool{New: func() any { return &panel{data: make([]float32, packedN*depth)} }}

func gemmGonum(w gpu.Workers, alpha float32, a, b Matrix, beta float32, c Matrix) {
	m, k := a.dims()
	_, n := b.dims()
	packA, packB := a.Trans, !b.Trans || !aligned(b)
	if !packA && !packB {
		tiles(w, m, n, func(i, ih, j, jh int) {
			for p := 0; p < k; p += depth {
				ph := min(p+depth, k)
				dots(alpha, a.Data[i*a.Stride+p:], a.Stride, b.Data[j*b.Stride+p:], b.Stride, betaAt(p, beta), c, i, ih, j, jh, ph-p)
			}
		})
		return
	}
	pa, pb := panels.Get().(*panel), panels.Get().(*panel)
	defer panels.Put(pa)
	defer panels.Put(pb)
	for j0 := 0; j0 < n; j0 += packedN {
		j1 := min(j0+packedN, n)
		for p := 0; p < k; p += depth {
			ph := min(p+depth, k)
			bd, bs, bj := b.Data, b.Stride, 0
			if packB {
				pack(w, pb.data, b.T(), j0, j1, p, ph)
				bd, bs, bj = pb.data, depth, j0
			} else {
				bd = bd[p:]
			}
			for i0 := 0; i0 < m; i0 += packedM {
				i1 := min(i0+packedM, m)
				ad, as, ai := a.Data, a.Stride, 0
				if packA {
					pack(w, pa.data, a, i0, i1, p, ph)
					ad, as, ai = pa.data, depth, i0
				} else {
					ad = ad[p:]
				}
				tiles(w, i1-i0, j1-j0, func(i, ih, j, jh int) {
					i, ih, j, jh = i+i0, ih+i0, j+j0, jh+j0
					dots(alpha, ad[(i-ai)*as:], as, bd[(j-bj)*bs:], bs, betaAt(p, beta), c, i, ih, j, jh, ph-p)
				})
			}
		}
	}
}

// betaAt is beta for the first piece along k and 1 for those that add to it.
func betaAt(p int, beta float32) float32 {
	if p == 0 {
		return beta
	}
	return 1
}

// tiles runs body for the tiles of an m x n result.
func tiles(w gpu.Workers, m, n int, body func(i, ih, j, jh int)) {
	across := (n + stripN - 1) / stripN
	down := (m + tileM - 1) / tileM
	w.For(across*down, 1, func(lo, hi int) {
		for t := lo; t < hi; t++ {
			i, j := t/across*tileM, t%across*stripN
			body(i, min(i+tileM, m), j, min(j+stripN, n))
		}
	})
}

// dots computes rows [i,ih) and columns [j,jh) of c from rows of a and b.
func dots(alpha float32, a []float32, as int, b []float32, bs int, beta float32, c Matrix, i, ih, j, jh, k int) {
	for q := j; q < jh; q += tileN {
		qh := min(q+tileN, jh)
		kernel.Sgemm(blas.NoTrans, blas.Trans, ih-i, qh-q, k, alpha, a, as, b[(q-j)*bs:], bs, beta, c.Data[i*c.Stride+q:], c.Stride)
	}
}

// pack writes rows [r0,r1), columns [p0,p1) of what m stands for to dst, depth apart.
func pack(w gpu.Workers, dst []float32, m Matrix, r0, r1, p0, p1 int) {
	w.For(r1-r0, tileN, func(lo, hi int) {
		if !m.Trans {
			for r := lo; r < hi; r++ {
				copy(dst[r*depth:r*depth+p1-p0], m.Data[(r0+r)*m.Stride+p0:])
			}
			return
		}
		for p := p0; p < p1; p++ {
			src := m.Data[p*m.Stride+r0+lo : p*m.Stride+r0+hi]
			for r, v := range src {
				dst[(lo+r)*depth+p-p0] = v
			}
		}
	})
}

// aligned says whether every row starts at a multiple of 16 bytes. gonum's dot
// product takes the elements before such a boundary on their own, in another
// order; rows that are not aligned are packed, so that bits do not depend on
// where a matrix lies.
func aligned(m Matrix) bool {
	return m.Stride%4 == 0 && uintptr(unsafe.Pointer(unsafe.SliceData(m.Data)))%16 == 0
}

func gonumVersion() string {
	const path = "gonum.org/v1/gonum"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == path {
				return "gonum " + d.Version
			}
		}
	}
	return "gonum"
}
