package quant

import (
	"math"

	"golang.org/x/sys/cpu"

	"longship/gpu/tensor"
)

// The rows of a 32 B model are read, scaled and rounded at the pace of a fast
// disk, which takes vector instructions: these loops are the ones of rows.go on
// 32 values at a time, bit for bit.

// float8 is what float8AVX2 needs to know of a format with f fraction bits and
// the smallest normal 2^least.
type float8 struct {
	largest float32
	least   uint32  // 2^least
	place   uint32  // 2^(23-f) as an exponent: added to a value's, a number whose last place is the code's
	shrink  float32 // brings a value's exponent to that of its code
	shift   uint32  // and its fraction
}

var (
	formatE5M2 = float8{largest: 57344, least: (127 - 14) << 23, place: 21 << 23, shrink: float32(math.Ldexp(1, 15-127)), shift: 21}
	formatE4M3 = float8{largest: 448, least: (127 - 6) << 23, place: 20 << 23, shrink: float32(math.Ldexp(1, 7-127)), shift: 20}
)

const block = 32 // values that the vector loops take at a time

//go:noescape
func float8AVX2(dst *byte, src *uint16, blocks int, f *float8, scale float32)

//go:noescape
func int8AVX2(dst *byte, src *uint16, blocks int, scale float32)

//go:noescape
func amaxAVX2(src *uint16, blocks int) uint16

// encodeBlocks stores the beginning of a row and returns how many values.
func encodeBlocks(dst []byte, row []uint16, scale float32, dt tensor.DType) int {
	blocks := len(row) / block
	if blocks == 0 || !cpu.X86.HasAVX2 {
		return 0
	}
	switch dt {
	case tensor.E5M2:
		float8AVX2(&dst[0], &row[0], blocks, &formatE5M2, scale)
	case tensor.E4M3:
		float8AVX2(&dst[0], &row[0], blocks, &formatE4M3, scale)
	case tensor.I8:
		int8AVX2(&dst[0], &row[0], blocks, scale)
	}
	return blocks * block
}

// amaxBlocks returns the bits of the largest magnitude of the beginning of a
// row, and of how many values.
func amaxBlocks(row []uint16) (top uint16, n int) {
	blocks := len(row) / block
	if blocks == 0 || !cpu.X86.HasAVX2 {
		return 0, 0
	}
	return amaxAVX2(&row[0], blocks), blocks * block
}
