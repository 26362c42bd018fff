package quant

import (
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
	raw  []byte
	wide []float32
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
			encodeBF16(dst[r*size:(r+1)*size], row, scale, dt)
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
