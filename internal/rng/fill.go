package rng

import "math"

// Normal returns element i of a standard normal sequence. Elements 2k and 2k+1
// are the two values that Box and Muller's transform makes of one block.
func (g Gen) Normal(i uint64) float64 {
	even, odd := g.normals(i >> 1)
	if i&1 == 0 {
		return even
	}
	return odd
}

// FillNormal sets dst[k] to Normal(from+k), rounded to float32. Filling in
// pieces gives the same values as filling at once.
func (g Gen) FillNormal(dst []float32, from uint64) {
	for len(dst) > 0 && from&1 == 1 {
		dst[0] = float32(g.Normal(from))
		dst, from = dst[1:], from+1
	}
	for ; len(dst) >= 2; dst, from = dst[2:], from+2 {
		even, odd := g.normals(from >> 1)
		dst[0], dst[1] = float32(even), float32(odd)
	}
	if len(dst) == 1 {
		dst[0] = float32(g.Normal(from))
	}
}

// FillUniform sets dst[k] to element from+k of a sequence uniform over the
// multiples of 2^-24 in [0, 1).
func (g Gen) FillUniform(dst []float32, from uint64) {
	for k := range dst {
		dst[k] = float32(g.Uint64(from+uint64(k))>>40) * 0x1p-24
	}
}

// normals is Box and Muller's transform of block n, in float64. The radius
// takes its uniform from (0, 1], so that the logarithm is finite.
func (g Gen) normals(n uint64) (even, odd float64) {
	b := g.block(n)
	r := math.Sqrt(-2 * math.Log(unit(b[0])+0x1p-53))
	sin, cos := math.Sincos(2 * math.Pi * unit(b[1]))
	return r * cos, r * sin
}
