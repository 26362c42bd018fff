package ops

import (
	"math"

	"longship/gpu"
	"longship/gpu/tensor"
	"longship/internal/rng"
)

// AdamParams are the settings of an Adam step. Step [1] I32 is the number of
// this update, counted from 1 (see CountStep): it lies in a tensor so that an
// update which the flag suppresses is not counted.
type AdamParams struct {
	LR, Beta1, Beta2, Eps float64
	WeightDecay           float64 // decoupled
	Step                  tensor.Tensor
	// Clip [1] F32, where given, multiplies the gradient (see ClipNorm).
	Clip tensor.Tensor
	// Flag [1] I32, where given and set, makes the whole step do nothing.
	Flag tensor.Tensor
}

func (p AdamParams) check(c *check) {
	c.array("step", p.Step, tensor.I32, 1)
	if p.Clip.Valid() {
		c.array("clip", p.Clip, tensor.F32, 1)
	}
	c.flag(p.Flag)
}

func (p AdamParams) clip() float32 {
	if !p.Clip.Valid() {
		return 1
	}
	return p.Clip.Float32s()[0]
}

func (p AdamParams) step() float64 { return float64(tensor.Host[int32](p.Step)[0]) }

// AdamW is one step of AdamW with float32 states, in torch's order:
//
//	p ← p·(1 - lr·wd)
//	m ← m + (1-β1)·(g - m),   v ← β2·v + (1-β2)·g²
//	p ← p - lr/(1-β1^t) · m / (sqrt(v)/sqrt(1-β2^t) + eps)
//
// P, G, M, V are contiguous and of equal size, P and G F32 or BF16, M and V F32
// and 0 at the start. A BF16 P is rounded stochastically with the numbers of
// Round: up or down to a neighbour, with probabilities that keep the mean.
// Source: Loshchilov and Hutter, arXiv 1711.05101; torch.optim.AdamW.
type AdamW struct {
	P, G, M, V tensor.Tensor
	Adam       AdamParams
	Round      rng.Gen
}

// Name is "adamw".
func (AdamW) Name() string { return "adamw" }

// Check demands equal sizes.
func (k AdamW) Check() error {
	var c check
	n := k.P.Len()
	c.parameter("p", k.P, n)
	c.parameter("g", k.G, n)
	c.array("m", k.M, tensor.F32, n)
	c.array("v", k.V, tensor.F32, n)
	k.Adam.check(&c)
	return c.err
}

// adamPiece is how many elements the host updates at a time.
const adamPiece = 256

// Host updates element by element.
func (k AdamW) Host(w gpu.Workers) error {
	if raised(k.Adam.Flag) {
		return nil
	}
	params, grads := elementsOf(k.P), elementsOf(k.G)
	m, v := k.M.Float32s(), k.V.Float32s()
	a, clip, t := k.Adam, k.Adam.clip(), k.Adam.step()
	keep := float32(1 - a.LR*a.WeightDecay)
	rise, beta2, rest := float32(1-a.Beta1), float32(a.Beta2), float32(1-a.Beta2)
	size := float32(a.LR / (1 - math.Pow(a.Beta1, t)))
	root := float32(math.Sqrt(1 - math.Pow(a.Beta2, t)))
	eps := float32(a.Eps)
	w.For(len(m), piece, func(lo, hi int) {
		var pbuf, gbuf [adamPiece]float32
		for from := lo; from < hi; from += adamPiece {
			to := min(from+adamPiece, hi)
			p, g, m, v := params.load(pbuf[:], from, to), grads.load(gbuf[:], from, to), m[from:to], v[from:to]
			for i := range p {
				gi := g[i] * clip
				mi := m[i] + rise*(gi-m[i])
				vi := beta2*v[i] + rest*gi*gi
				m[i], v[i] = mi, vi
				p[i] = p[i]*keep - size*(mi/(sqrt32(vi)/root+eps))
			}
			params.store(p, from, k.Round)
		}
	})
	return nil
}

func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// CountStep adds 1 to Step [1] I32, unless Flag [1] I32 is given and set.
type CountStep struct{ Step, Flag tensor.Tensor }

// Name is "count_step".
func (CountStep) Name() string { return "count_step" }

// Check demands one counter.
func (k CountStep) Check() error {
	var c check
	c.array("step", k.Step, tensor.I32, 1)
	c.flag(k.Flag)
	return c.err
}

// Host counts.
func (k CountStep) Host(gpu.Workers) error {
	if !raised(k.Flag) {
		tensor.Host[int32](k.Step)[0]++
	}
	return nil
}
