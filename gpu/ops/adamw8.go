package ops

import (
	"math"
	"slices"
	"sync"

	"longship/gpu"
	"longship/gpu/tensor"
	"longship/internal/rng"
)

// Adam8Block is the number of elements that share one absolute maximum in the
// states of AdamW8.
const Adam8Block = 256

// Adam8Blocks returns the number of blocks of n elements.
func Adam8Blocks(n int) int { return (n + Adam8Block - 1) / Adam8Block }

// AdamW8 is one step of AdamW whose states are 8-bit codes with one absolute
// maximum per block of Adam8Block elements (m = signed[MCode]·MMax, v =
// unsigned[VCode]·VMax). With c1 = 1-β1^t, c2 = sqrt(1-β2^t):
//
//	m ← β1·m + (1-β1)·g,   v ← β2·v + (1-β2)·g²
//	p ← p - lr·c2/c1 · m / (sqrt(v) + c2·eps)
//
// p is multiplied by 1 - lr·wd before that, or after it with DecayAfter. Then
// each block takes its new maximum and every element the nearest code; with
// FixSign a code whose value has not the sign of m moves one towards it. (Both
// set is what bitsandbytes does on a GPU, neither its CPU form.) An element whose
// gradient is not finite keeps its parameter and gets zero states.
//
// P and G F32 or BF16, contiguous, of n elements, a BF16 P rounded with Round as
// in AdamW; MCode and VCode U8 [n], MMax and VMax F32 [Adam8Blocks(n)]. New states
// are all zero bytes. Source: Dettmers and others, arXiv 2110.02861.
type AdamW8 struct {
	P, G         tensor.Tensor
	MCode, VCode tensor.Tensor
	MMax, VMax   tensor.Tensor
	Adam         AdamParams
	DecayAfter   bool
	FixSign      bool
	Round        rng.Gen
}

// Name is "adamw8".
func (AdamW8) Name() string { return "adamw8" }

// Check demands sizes that fit.
func (k AdamW8) Check() error {
	var c check
	n := k.P.Len()
	c.parameter("p", k.P, n)
	c.parameter("g", k.G, n)
	c.array("mcode", k.MCode, tensor.U8, n)
	c.array("vcode", k.VCode, tensor.U8, n)
	c.array("mmax", k.MMax, tensor.F32, Adam8Blocks(n))
	c.array("vmax", k.VMax, tensor.F32, Adam8Blocks(n))
	k.Adam.check(&c)
	return c.err
}

// Host updates block by block, all in float32.
func (k AdamW8) Host(w gpu.Workers) error {
	if raised(k.Adam.Flag) {
		return nil
	}
	params, grads := elementsOf(k.P), elementsOf(k.G)
	mcode, vcode := tensor.Host[byte](k.MCode), tensor.Host[byte](k.VCode)
	mmax, vmax := k.MMax.Float32s(), k.VMax.Float32s()
	a, clip, t := k.Adam, k.Adam.clip(), k.Adam.step()
	lr, beta1, beta2 := float32(a.LR), float32(a.Beta1), float32(a.Beta2)
	c1 := float32(1 - math.Pow(float64(beta1), t))
	c2 := float32(math.Sqrt(1 - math.Pow(float64(beta2), t)))
	size, eps := -lr*c2/c1, c2*float32(a.Eps)
	keep := 1 - lr*float32(a.WeightDecay)
	signed, unsigned := SignedCode(), UnsignedCode()
	w.For(len(mmax), piece/Adam8Block, func(lo, hi int) {
		var m, v, pbuf, gbuf [Adam8Block]float32
		for b := lo; b < hi; b++ {
			from, to := b*Adam8Block, min((b+1)*Adam8Block, k.P.Len())
			p, g := params.load(pbuf[:], from, to), grads.load(gbuf[:], from, to)
			mcode, vcode := mcode[from:to], vcode[from:to]
			for i := range p {
				gi := g[i] * clip
				if !finite(gi) {
					m[i], v[i] = 0, 0
					continue
				}
				mi := signed.Value[mcode[i]]*mmax[b]*beta1 + (1-beta1)*gi
				vi := unsigned.Value[vcode[i]]*vmax[b]*beta2 + (1-beta2)*gi*gi
				m[i], v[i] = mi, vi
				x := p[i]
				if !k.DecayAfter {
					x *= keep
				}
				x += size * (mi / (sqrt32(vi) + eps))
				if k.DecayAfter {
					x *= keep
				}
				p[i] = x
			}
			params.store(p, from, k.Round)
			mmax[b] = signed.encode(mcode, m[:to-from])
			vmax[b] = unsigned.encode(vcode, v[:to-from])
			if k.FixSign {
				signed.fixSigns(mcode, m[:to-from])
			}
		}
	})
	return nil
}

// Code is a table of 256 values in rising order from at least -1 to 1.
type Code struct {
	Value  [256]float32
	middle [255]float32 // between neighbours
	start  [keys]byte   // for every key, a code at or below those of its numbers
}

// A key is the sign, the exponent and the three highest bits of the mantissa of
// a float32: between two of them lie few codes.
const (
	keyShift = 20
	keys     = 1 << (32 - keyShift)
)

// SignedCode returns the table of first moments.
var SignedCode = sync.OnceValue(func() *Code { return newCode(true) })

// UnsignedCode returns the table of second moments.
var UnsignedCode = sync.OnceValue(func() *Code { return newCode(false) })

// newCode builds a dynamic-exponent table: for each decade i of 7 the middles of
// 2^i (signed) or 2^(i+1) equal parts of [0.1, 1], times 10^(i-6); 0 and 1.
func newCode(signed bool) *Code {
	values := []float32{0, 1}
	for i := range 7 {
		parts := 1 << i
		if !signed {
			parts *= 2
		}
		scale := float32(math.Pow(10, float64(i-6)))
		edge := func(j int) float32 {
			if j == parts {
				return 1
			}
			return float32(0.1 + float64(j)*(0.9/float64(parts)))
		}
		for j := range parts {
			v := scale * ((edge(j) + edge(j+1)) / 2)
			values = append(values, v)
			if signed {
				values = append(values, -v)
			}
		}
	}
	slices.Sort(values)
	c := &Code{Value: [256]float32(values)}
	for i := range c.middle {
		c.middle[i] = (c.Value[i] + c.Value[i+1]) * 0.5
	}
	for key := range c.start {
		low := math.Float32frombits(uint32(key) << keyShift)
		if key >= keys/2 { // negative: the number farthest from 0 is the lowest
			low = math.Float32frombits(uint32(key+1)<<keyShift - 1)
		}
		i, _ := slices.BinarySearch(c.middle[:], low)
		c.start[key] = byte(i)
	}
	return c
}

// Nearest returns the code of the value nearest to x; at a middle the lower one.
func (c *Code) Nearest(x float32) byte {
	i := int(c.start[math.Float32bits(x)>>keyShift])
	for i < len(c.middle) && c.middle[i] < x {
		i++
	}
	return byte(i)
}

// encode writes the codes of x by its absolute maximum, which it returns.
func (c *Code) encode(dst []byte, x []float32) float32 {
	var top float32
	for _, v := range x {
		top = max(top, v, -v)
	}
	by := top
	if by == 0 {
		by = 1
	}
	for i, v := range x {
		dst[i] = c.Nearest(v / by)
	}
	return top
}

// fixSigns moves codes whose value's sign is not that of x one towards it.
func (c *Code) fixSigns(codes []byte, x []float32) {
	for i, v := range x {
		if math.Signbit(float64(c.Value[codes[i]])) == math.Signbit(float64(v)) {
			continue
		}
		if v > 0 {
			codes[i] = min(codes[i], 254) + 1
		} else {
			codes[i] = max(codes[i], 1) - 1
		}
	}
}
