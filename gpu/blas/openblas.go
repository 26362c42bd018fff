package blas

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"longship/gpu"
)

// openBLAS is the library loaded at run time. It runs single-threaded: the
// tiles are shared out here, as they are for gonum.
type openBLAS struct {
	version string
	sgemm   func(order, transA, transB int32, m, n, k int32, alpha float32, a unsafe.Pointer, lda int32, b unsafe.Pointer, ldb int32, beta float32, c unsafe.Pointer, ldc int32)
}

const (
	rowMajor = 101
	noTrans  = 111
	trans    = 112

	bigTileM = 192
	bigTileN = 512
)

func openOpenBLAS() (*openBLAS, error) {
	names := []string{"libopenblas.so.0", "libopenblas.so"}
	switch runtime.GOOS {
	case "windows":
		names = []string{"libopenblas.dll", "openblas.dll"}
	case "darwin":
		names = []string{"/opt/homebrew/opt/openblas/lib/libopenblas.dylib", "libopenblas.dylib"}
	}
	if p := os.Getenv("LONGSHIP_OPENBLAS"); p != "" {
		names = []string{p}
	}
	var faults []string
	for _, name := range names {
		lib, err := loadOpenBLAS(name)
		if err == nil {
			return lib, nil
		}
		faults = append(faults, err.Error())
	}
	return nil, fmt.Errorf("LONGSHIP_BLAS=openblas: not found (install it, or name the file in LONGSHIP_OPENBLAS): %s", strings.Join(faults, "; "))
}

func (l *openBLAS) gemm(w gpu.Workers, alpha float32, a, b Matrix, beta float32, c Matrix) {
	_, k := a.dims()
	across := (c.Cols + bigTileN - 1) / bigTileN
	down := (c.Rows + bigTileM - 1) / bigTileM
	w.For(across*down, 1, func(lo, hi int) {
		for t := lo; t < hi; t++ {
			i, j := t/across*bigTileM, t%across*bigTileN
			m, n := min(bigTileM, c.Rows-i), min(bigTileN, c.Cols-j)
			pa, ta := a.from(i, 0)
			pb, tb := b.from(0, j)
			l.sgemm(rowMajor, ta, tb, int32(m), int32(n), int32(k), alpha, pa, int32(a.Stride), pb, int32(b.Stride), beta,
				unsafe.Pointer(&c.Data[i*c.Stride+j]), int32(c.Stride))
		}
	})
}

// from returns the address of element (i, j) of what m stands for, and BLAS's code of its form.
func (m Matrix) from(i, j int) (unsafe.Pointer, int32) {
	if m.Trans {
		return unsafe.Pointer(&m.Data[j*m.Stride+i]), trans
	}
	return unsafe.Pointer(&m.Data[i*m.Stride+j]), noTrans
}
