package dtype

import "math"

// BF16ToF32 widens bfloat16; every pattern is exact.
func BF16ToF32(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, b := range src {
		dst[i] = math.Float32frombits(uint32(b) << 16)
	}
}

// F32ToBF16 rounds to bfloat16.
func F32ToBF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = BF16(x)
	}
}

// BF16 rounds one value to bfloat16.
func BF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40 // a NaN, made quiet so that it cannot turn into infinity
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// F16ToF32 widens float16; every pattern is exact.
func F16ToF32(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = f16(h)
	}
}

func f16(h uint16) float32 {
	const exponent = 0x7c00 << 13
	b := uint32(h&0x7fff) << 13
	switch e := b & exponent; {
	case e == exponent: // infinity, NaN
		b += (255 - 31) << 23
	case e == 0: // zero, subnormal: let the FPU normalise it
		b = math.Float32bits(math.Float32frombits(b+113<<23) - math.Float32frombits(113<<23))
	default:
		b += (127 - 15) << 23
	}
	return math.Float32frombits(b | uint32(h&0x8000)<<16)
}

// F32ToF16 rounds to float16.
func F32ToF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = uint16(narrow(x, 10, 15, 0x7c00, 0x7e00)&0x7fff) | uint16(math.Float32bits(x)>>16&0x8000)
	}
}

// narrow rounds |x| to a format of `mantissa` fraction bits and a 5- or 4-bit
// exponent with the given bias. over is the pattern of what lies beyond the
// largest exponent, nan that of a NaN.
func narrow(x float32, mantissa, bias, over, nan uint32) uint32 {
	b := math.Float32bits(x) & 0x7fffffff
	shift := 23 - mantissa
	switch {
	case b > 0x7f800000:
		return nan
	case b>>23 < 128-bias: // below the smallest normal, 2^(1-bias): let the FPU round at the last subnormal's place
		magic := (128 - bias + shift) << 23
		return math.Float32bits(math.Float32frombits(b)+math.Float32frombits(magic)) - magic
	}
	b -= (127 - bias) << 23
	return min((b+(1<<(shift-1)-1)+b>>shift&1)>>shift, over)
}
