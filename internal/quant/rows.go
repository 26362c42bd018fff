package quant

import (
	"math"

	"longship/gpu/tensor"
	"longship/internal/dtype"
)

// largest returns the largest magnitude that a scaled type can hold.
func largest(dt tensor.DType) float32 {
	switch dt {
	case tensor.E5M2:
		return dtype.MaxE5M2
	case tensor.E4M3:
		return dtype.MaxE4M3
	case tensor.I8:
		return 127
	}
	return 0
}

func scaled(dt tensor.DType) bool { return largest(dt) > 0 }

// rowScale returns the scale of a row whose largest magnitude is amax; 1 for a
// row that is zero, or too close to it to have one.
func rowScale(amax float32, dt tensor.DType) float32 {
	if !scaled(dt) {
		return 1
	}
	if scale := amax / largest(dt); scale > 0 {
		return scale
	}
	return 1
}

// amaxF32 returns the largest magnitude, a NaN if there is one.
func amaxF32(row []float32) float32 {
	var top uint32
	for _, v := range row {
		top = max(top, math.Float32bits(v)&0x7fffffff) // magnitudes sort like their bits, NaNs last
	}
	return math.Float32frombits(top)
}

// amaxBF16 returns the bits of the largest magnitude of bfloat16 values; 0x7f80
// and above if one is infinite or a NaN.
func amaxBF16(row []uint16) uint16 {
	top, n := amaxBlocks(row)
	for _, v := range row[n:] {
		top = max(top, v&0x7fff)
	}
	return top
}

// code returns the code of a quotient.
func code(q float32, dt tensor.DType) byte {
	switch dt {
	case tensor.E5M2:
		return dtype.E5M2Sat(q)
	case tensor.E4M3:
		return dtype.E4M3Sat(q)
	default: // int8: adding 1.5·2^23 rounds to nearest even and leaves a whole number in the low bits
		return byte(math.Float32bits(min(max(q, -127), 127) + 3<<22))
	}
}

// encodeF32 stores one row.
func encodeF32(dst []byte, row []float32, scale float32, dt tensor.DType) {
	switch dt {
	case tensor.BF16:
		dtype.F32ToBF16(dtype.View[uint16](dst), row)
	case tensor.F32:
		copy(dst, dtype.Bytes(row))
	default:
		for i, v := range row {
			dst[i] = code(v/scale, dt)
		}
	}
}

// encodeBF16 stores one row of bfloat16 values.
func encodeBF16(dst []byte, row []uint16, scale float32, dt tensor.DType) {
	switch dt {
	case tensor.BF16:
		copy(dst, dtype.Bytes(row))
	case tensor.F32:
		dtype.BF16ToF32(dtype.View[float32](dst), row)
	default:
		for i := encodeBlocks(dst, row, scale, dt); i < len(row); i++ {
			dst[i] = code(math.Float32frombits(uint32(row[i])<<16)/scale, dt)
		}
	}
}
