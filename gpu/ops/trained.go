package ops

import (
	"math"

	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/rng"
)

// parameter demands n elements of a trained parameter or its gradient: float32,
// or bfloat16.
func (c *check) parameter(name string, t tensor.Tensor, n int) {
	dt := tensor.F32
	if t.DType == tensor.BF16 {
		dt = tensor.BF16
	}
	c.array(name, t, dt, n)
}

// elements are those of a trained parameter, or of its gradient, on the host.
type elements struct {
	single []float32
	half   []uint16
}

func elementsOf(t tensor.Tensor) elements {
	if t.DType == tensor.BF16 {
		return elements{half: tensor.Host[uint16](t)}
	}
	return elements{single: t.Float32s()}
}

// load returns elements [lo,hi) as float32: themselves, or a copy in buf.
func (e elements) load(buf []float32, lo, hi int) []float32 {
	if e.half == nil {
		return e.single[lo:hi]
	}
	dtype.BF16ToF32(buf[:hi-lo], e.half[lo:hi])
	return buf[:hi-lo]
}

// store writes back what load gave for elements from lo on. Those of bfloat16
// are rounded stochastically: 16 random bits, for element i those from bit
// 16·(i%4) on of round's element i/4, are added below what bfloat16 keeps.
func (e elements) store(x []float32, lo int, round rng.Gen) {
	if e.half == nil {
		return
	}
	var bits uint64
	for k, v := range x {
		i := lo + k
		if k == 0 || i%4 == 0 {
			bits = round.Uint64(uint64(i / 4))
		}
		if !finite(v) {
			e.half[i] = dtype.BF16(v)
			continue
		}
		e.half[i] = uint16((math.Float32bits(v) + uint32(uint16(bits>>(i%4*16)))) >> 16)
	}
}
