package quant

import (
	"encoding/binary"
	"fmt"
	"math"

	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/safetensors"
	"longship/internal/weights"
)

// Encoder reads rows of weights and stores them. Its zero value is ready; it
// keeps buffers as large as the largest call needed.
type Encoder struct {
	raw   []byte
	wide  []float32
	codes *codeTable
}

// Rows stores rows [lo, hi) of w as dt in dst, which must have their length in
// bytes. For a type with scales (E5M2, E4M3, I8) it sets scales, one a row;
// others leave scales alone.
func (e *Encoder) Rows(dst []byte, scales []float32, w weights.Weight, lo, hi int, dt tensor.DType) error {
	cols := w.Cols()
	size := cols * dt.Size()
	if len(dst) != (hi-lo)*size {
		return fmt.Errorf("quantise %s: %d bytes for %d rows of %d %s", w.Name, len(dst), hi-lo, cols, dt)
	}
	if w.DType() == safetensors.BF16 && !w.Scaled() {
		e.raw = grow(e.raw, (hi-lo)*cols*2)
		if err := w.ReadRows(e.raw, lo); err != nil {
			return err
		}
		src := dtype.View[uint16](e.raw)
		for r := range hi - lo {
			row := src[r*cols : (r+1)*cols]
			amax := amaxBF16(row)
			if amax >= 0x7f80 {
				return notFinite(w, lo+r)
			}
			scale := rowScale(math.Float32frombits(uint32(amax)<<16), dt)
			if scaled(dt) {
				scales[r] = scale
			}
			e.encodeBF16(dst[r*size:(r+1)*size], row, amax, scale, dt)
		}
		return nil
	}
	e.wide = grow(e.wide, (hi-lo)*cols)
	if err := w.Floats(e.wide, lo); err != nil {
		return err
	}
	for r := range hi - lo {
		row := e.wide[r*cols : (r+1)*cols]
		amax := amaxF32(row)
		if !(amax < math.MaxFloat32 || amax == math.MaxFloat32) {
			return notFinite(w, lo+r)
		}
		scale := rowScale(amax, dt)
		if scaled(dt) {
			scales[r] = scale
		}
		encodeF32(dst[r*size:(r+1)*size], row, scale, dt)
	}
	return nil
}

func notFinite(w weights.Weight, row int) error {
	return w.Errorf(row, "row %d of weight %s holds a NaN or an infinity: the file is broken, download it again", row, w.Name)
}

// grow returns a slice of n elements, in s's memory where it fits.
func grow[T byte | float32](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

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
// and above if one is infinite or a NaN. It looks at four at a time: a borrow
// into the sign bit of a lane tells that one is above the largest so far, which
// is soon rare.
func amaxBF16(row []uint16) (top uint16) {
	const lane = 0x0001000100010001
	const signs = 0x8000 * lane
	bytes := dtype.Bytes(row)
	limit := uint64(signs)
	for len(bytes) >= 8 {
		x := binary.LittleEndian.Uint64(bytes) &^ signs
		bytes = bytes[8:]
		if (limit-x)&signs != signs {
			top = max(top, uint16(x), uint16(x>>16), uint16(x>>32), uint16(x>>48))
			limit = signs | uint64(top)*lane
		}
	}
	for _, v := range row[len(row)-len(bytes)/2:] {
		top = max(top, v&0x7fff)
	}
	return top
}

// encodeF32 stores one row.
func encodeF32(dst []byte, row []float32, scale float32, dt tensor.DType) {
	switch dt {
	case tensor.E5M2:
		for i, v := range row {
			dst[i] = dtype.E5M2Sat(v / scale)
		}
	case tensor.E4M3:
		for i, v := range row {
			dst[i] = dtype.E4M3Sat(v / scale)
		}
	case tensor.I8:
		for i, v := range row {
			dst[i] = int8Code(v / scale)
		}
	case tensor.BF16:
		dtype.F32ToBF16(dtype.View[uint16](dst), row)
	case tensor.F32:
		copy(dst, dtype.Bytes(row))
	}
}

// encodeBF16 stores one row whose largest magnitude has the bits amax.
func (e *Encoder) encodeBF16(dst []byte, row []uint16, amax uint16, scale float32, dt tensor.DType) {
	switch dt {
	case tensor.E5M2:
		e.encodeFloat8(dst, row, amax, scale, 2, dtype.E5M2Sat)
	case tensor.E4M3:
		e.encodeFloat8(dst, row, amax, scale, 3, dtype.E4M3Sat)
	case tensor.I8:
		for i, b := range row {
			dst[i] = int8Code(math.Float32frombits(uint32(b)<<16) / scale)
		}
	case tensor.BF16:
		copy(dst, dtype.Bytes(row))
	case tensor.F32:
		dtype.BF16ToF32(dtype.View[float32](dst), row)
	}
}

// int8Code rounds a quotient, at most 127 and a rounding error, to nearest
// even: adding 1.5·2^23 leaves a whole number in the low bits of the float.
func int8Code(q float32) byte {
	return byte(math.Float32bits(q + 3<<22))
}
