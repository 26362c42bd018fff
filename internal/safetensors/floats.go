package safetensors

import (
	"longship/internal/dtype"
)

// IsFloat says whether Floats can read the type.
func (d DType) IsFloat() bool {
	switch d {
	case F32, BF16, F16, F64, E5M2, E4M3:
		return true
	}
	return false
}

// Floats fills dst with len(dst) elements from element first on, widened to
// float32 (F64 is rounded). It holds a piece of the file at a time.
func (t Tensor) Floats(dst []float32, first int) error {
	if !t.DType.IsFloat() {
		return t.Errorf("%s values are not floats", t.DType)
	}
	size := t.DType.Bits() / 8
	const piece = 1 << 16 // elements
	buf := make([]byte, min(len(dst), piece)*size)
	for lo := 0; lo < len(dst); lo += piece {
		out := dst[lo:min(lo+piece, len(dst))]
		raw := buf[:len(out)*size]
		if _, err := t.ReadAt(raw, int64(first+lo)*int64(size)); err != nil {
			return err
		}
		widen(out, raw, t.DType)
	}
	return nil
}

// Float32 returns all elements widened to float32.
func (t Tensor) Float32() ([]float32, error) {
	dst := make([]float32, t.Len())
	return dst, t.Floats(dst, 0)
}

func widen(dst []float32, raw []byte, d DType) {
	switch d {
	case F32:
		copy(dst, dtype.View[float32](raw))
	case BF16:
		dtype.BF16ToF32(dst, dtype.View[uint16](raw))
	case F16:
		dtype.F16ToF32(dst, dtype.View[uint16](raw))
	case F64:
		for i, v := range dtype.View[float64](raw) {
			dst[i] = float32(v)
		}
	case E5M2:
		dtype.E5M2ToF32(dst, raw)
	case E4M3:
		dtype.E4M3ToF32(dst, raw)
	}
}
