// Package dtype converts between float32 and the narrow element types that
// weights are stored in, in bulk and bit for bit as IEEE 754 and the OCP FP8
// formats say: bfloat16, float16, float8 E5M2 (the product's BF8) and float8
// E4M3 (e4m3fn: no infinity, NaN is 0x7f and 0xff, largest 448).
//
// Narrowing rounds to nearest, ties to even. A NaN stays a NaN. A value beyond
// the range becomes infinity (E4M3: NaN), or the largest finite value in the
// Sat forms. All functions are pure and may be called from any goroutine.
//
// In every pair dst must be at least as long as src.
package dtype

import (
	"fmt"
	"unsafe"
)

// View returns the bytes as little-endian values of T without copying. It
// panics if b is not a whole number of values or starts at an address that T
// may not have; a buffer made with its full length never does.
func View[T uint16 | uint32 | int8 | int32 | int64 | float32 | float64](b []byte) []T {
	var z T
	size := int(unsafe.Sizeof(z))
	if len(b)%size != 0 || (len(b) > 0 && uintptr(unsafe.Pointer(&b[0]))%uintptr(size) != 0) {
		panic(fmt.Sprintf("dtype: %d bytes at %p viewed as %T", len(b), b, z))
	}
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), len(b)/size)
}

// Bytes returns the values' bytes, little-endian, without copying.
func Bytes[T uint16 | uint32 | int8 | int32 | int64 | float32 | float64](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}
