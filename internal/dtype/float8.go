package dtype

import "math"

// The largest finite values.
const (
	MaxE5M2 = 57344
	MaxE4M3 = 448
)

var e5m2, e4m3 = func() (e5, e4 [256]float32) {
	for i := range e5 {
		e5[i] = f16(uint16(i) << 8) // E5M2 is the upper byte of float16
		e4[i] = decodeE4M3(byte(i))
	}
	return
}()

func decodeE4M3(c byte) float32 {
	sign := float32(1)
	if c&0x80 != 0 {
		sign = -1
	}
	e, m := int(c>>3&15), float64(c&7)
	switch {
	case e == 15 && m == 7:
		return math.Float32frombits(0x7fc00000 | uint32(c&0x80)<<24)
	case e == 0:
		return sign * float32(math.Ldexp(m/8, -6))
	}
	return sign * float32(math.Ldexp(1+m/8, e-7))
}

// E5M2ToF32 widens float8 E5M2; every pattern is exact.
func E5M2ToF32(dst []float32, src []byte) { decode8(dst, src, &e5m2) }

// E4M3ToF32 widens float8 E4M3; every pattern is exact.
func E4M3ToF32(dst []float32, src []byte) { decode8(dst, src, &e4m3) }

func decode8(dst []float32, src []byte, table *[256]float32) {
	dst = dst[:len(src)]
	for i, c := range src {
		dst[i] = table[c]
	}
}

// F32ToE5M2 rounds to float8 E5M2; what rounds beyond 57344 is infinity.
func F32ToE5M2(dst []byte, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = byte(narrow(x, 2, 15, 0x7c, 0x7f)) | sign8(x)
	}
}

// F32ToE5M2Sat rounds to float8 E5M2; what is beyond ±57344 becomes ±57344.
func F32ToE5M2Sat(dst []byte, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = E5M2Sat(x)
	}
}

// E5M2Sat rounds one value as F32ToE5M2Sat does.
func E5M2Sat(x float32) byte { return byte(narrow(x, 2, 15, 0x7b, 0x7f)) | sign8(x) }

// F32ToE4M3 rounds to float8 E4M3; what rounds beyond 448 is NaN.
func F32ToE4M3(dst []byte, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = byte(narrow(x, 3, 7, 0x7f, 0x7f)) | sign8(x)
	}
}

// F32ToE4M3Sat rounds to float8 E4M3; what is beyond ±448 becomes ±448.
func F32ToE4M3Sat(dst []byte, src []float32) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = E4M3Sat(x)
	}
}

// E4M3Sat rounds one value as F32ToE4M3Sat does.
func E4M3Sat(x float32) byte { return byte(narrow(x, 3, 7, 0x7e, 0x7f)) | sign8(x) }

func sign8(x float32) byte { return byte(math.Float32bits(x) >> 24 & 0x80) }
