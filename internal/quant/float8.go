package quant

import (
	"encoding/binary"
	"math"
)

// codeTable has the float8 code of every bfloat16 for one scale, or 0 where the
// code has to be computed: below about 2^-15 of the row's largest value.
type codeTable struct {
	code [1 << 16]byte
	low  int // exponents below low have only zeros
}

const (
	fractions = 1 << 7  // bfloat16 values of one exponent and sign
	negative  = 1 << 15 // the first of the negative ones
	window    = 15      // exponents below the largest that a table has at most; smaller values are rare
)

// set makes the table of a scale, for magnitudes up to those that have exponent
// top. Doubling a value adds 1 to the exponent of its code, exactly, so that
// the codes of one exponent give those of all others. top must be far from the
// subnormals of float32, in which doubling is not exact.
func (t *codeTable) set(top int, scale float32, fraction uint, encode func(float32) byte) {
	// Made for an exponent at which no quotient can saturate or be subnormal.
	const below = 4
	var first [fractions]int
	least := math.MaxInt
	for m := range first {
		x := math.Float32frombits(uint32((top-below)*fractions+m) << 16)
		first[m] = int(encode(x / scale))
		least = min(least, first[m])
	}
	normal := 1 << fraction
	down := min((least-normal)>>fraction, window-below)
	low := top - below - down // normal codes only from there on
	const each = 0x0101010101010101
	for m := 0; m < fractions; m += 8 {
		var word uint64 // eight codes at once: no sum of two reaches 256
		for k := range 8 {
			word |= uint64(first[m+k]-down<<fraction) << (8 * k)
		}
		for e := low; e <= top; e++ {
			binary.LittleEndian.PutUint64(t.code[e*fractions+m:], word)
			binary.LittleEndian.PutUint64(t.code[negative+e*fractions+m:], word|each<<7)
			word += each << fraction
		}
	}
	if t.low < low {
		clear(t.code[t.low*fractions : low*fractions])
		clear(t.code[negative+t.low*fractions : negative+low*fractions])
	}
	t.low = low
}

// lowestTop is the lowest exponent of a row's largest value for which a table is used.
const lowestTop = 64

// encodeFloat8 stores one row as a float8 with the given number of fraction bits.
func (e *Encoder) encodeFloat8(dst []byte, row []uint16, amax uint16, scale float32, fraction uint, encode func(float32) byte) {
	top := int(amax) / fractions
	if top < lowestTop {
		encodeBelow(dst, row, scale, encode)
		return
	}
	if e.codes == nil {
		e.codes = new(codeTable)
	}
	e.codes.set(top, scale, fraction, encode)
	code := &e.codes.code
	for len(row) >= 4 && len(dst) >= 4 {
		x, y := (*[4]uint16)(row), (*[4]byte)(dst)
		a, b, c, d := code[x[0]], code[x[1]], code[x[2]], code[x[3]]
		if a == 0 || b == 0 || c == 0 || d == 0 {
			encodeBelow(y[:], x[:], scale, encode)
		} else {
			y[0], y[1], y[2], y[3] = a, b, c, d
		}
		row, dst = row[4:], dst[4:]
	}
	encodeBelow(dst, row, scale, encode)
}

// encodeBelow stores values without a table.
func encodeBelow(dst []byte, row []uint16, scale float32, encode func(float32) byte) {
	for i, b := range row {
		dst[i] = encode(math.Float32frombits(uint32(b)<<16) / scale)
	}
}
