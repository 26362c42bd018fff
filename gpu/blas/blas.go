// Package blas multiplies float32 matrices on the host. It is gonum's BLAS with
// a cache-friendly order of its own around it, or OpenBLAS where the
// environment variable LONGSHIP_BLAS is "openblas" (the library is found at run
// time, without cgo; set OPENBLAS_CORETYPE where it picks the wrong kernels).
//
// A product is cut into tiles whose sizes depend on the shapes alone, and each
// tile is computed by one core in one order, so results have the same bits for
// any GOMAXPROCS and any alignment of the operands. Infinities and NaNs
// propagate, also where the other factor is zero.
package blas

import (
	"fmt"
	"os"
	"sync"

	"longship/gpu"
)

// Matrix is a row-major matrix whose rows are Stride elements apart. With Trans
// set it stands for its transpose: Rows and Cols are those of the data.
type Matrix struct {
	Data       []float32
	Rows, Cols int
	Stride     int
	Trans      bool
}

// T returns the transpose of m, the same data.
func (m Matrix) T() Matrix {
	m.Trans = !m.Trans
	return m
}

// dims returns the rows and columns of what m stands for.
func (m Matrix) dims() (rows, cols int) {
	if m.Trans {
		return m.Cols, m.Rows
	}
	return m.Rows, m.Cols
}

// Gemm computes c = alpha*a*b + beta*c. With beta 0 what c held does not
// matter. c must not be transposed; shapes must agree.
func Gemm(w gpu.Workers, alpha float32, a, b Matrix, beta float32, c Matrix) {
	m, k := a.dims()
	k2, n := b.dims()
	if k != k2 || c.Rows != m || c.Cols != n || c.Trans {
		panic(fmt.Sprintf("blas: [%d,%d] x [%d,%d] into [%d,%d]", m, k, k2, n, c.Rows, c.Cols))
	}
	if m == 0 || n == 0 {
		return
	}
	if k == 0 {
		scale(c, beta)
		return
	}
	lib, err := load()
	if err != nil || lib == nil {
		gemmGonum(w, alpha, a, b, beta, c)
		return
	}
	lib.gemm(w, alpha, a, b, beta, c)
}

// Library names what computes the products, for the record: its version decides
// bits. It fails where the library asked for cannot be loaded.
func Library() (string, error) {
	lib, err := load()
	if err != nil {
		return "", err
	}
	if lib == nil {
		return gonumVersion(), nil
	}
	return lib.version, nil
}

// load returns OpenBLAS where the environment asks for it, else nil.
var load = sync.OnceValues(func() (*openBLAS, error) {
	switch v := os.Getenv("LONGSHIP_BLAS"); v {
	case "", "gonum":
		return nil, nil
	case "openblas":
		return openOpenBLAS()
	default:
		return nil, fmt.Errorf("LONGSHIP_BLAS is %q; it may be gonum or openblas", v)
	}
})

// Serial runs loops on the calling goroutine, piece by piece: the Workers of
// code that is itself a piece of a parallel loop.
type Serial struct{}

// For calls body for the pieces of [0, n) in order.
func (Serial) For(n, grain int, body func(lo, hi int)) {
	for lo := 0; lo < n; lo += grain {
		body(lo, min(lo+grain, n))
	}
}

func scale(c Matrix, beta float32) {
	for i := range c.Rows {
		row := c.Data[i*c.Stride : i*c.Stride+c.Cols]
		for j := range row {
			if beta == 0 {
				row[j] = 0
			} else {
				row[j] *= beta
			}
		}
	}
}
