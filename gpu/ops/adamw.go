package ops

import (
	"math"

	"longship/gpu"
	"longship/gpu/tensor"
	"longship/internal/dtype"
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
// P, G, M, V are contiguous and of equal size; P is F32, or BF16 and then rounded
// stochastically with the numbers of Round: up or down to a neighbour, with
// probabilities that keep the mean. M and V start at 0. Source: Loshchilov and
// Hutter, arXiv 1711.05101; torch.optim.AdamW.
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
	c.parameter(k.P)
	c.array("g", k.G, tensor.F32, n)
	c.array("m", k.M, tensor.F32, n)
	c.array("v", k.V, tensor.F32, n)
	k.Adam.check(&c)
	return c.err
}

// Host updates element by element.
func (k AdamW) Host(w gpu.Workers) error {
	if raised(k.Adam.Flag) {
		return nil
	}
	p := trained(k.P, k.Round)
	g, m, v := k.G.Float32s(), k.M.Float32s(), k.V.Float32s()
	a, clip, t := k.Adam, k.Adam.clip(), k.Adam.step()
	keep := float32(1 - a.LR*a.WeightDecay)
	rise, beta2, rest := float32(1-a.Beta1), float32(a.Beta2), float32(1-a.Beta2)
	size := float32(a.LR / (1 - math.Pow(a.Beta1, t)))
	root := float32(math.Sqrt(1 - math.Pow(a.Beta2, t)))
	eps := float32(a.Eps)
	w.For(len(g), piece, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			gi := g[i] * clip
			mi := m[i] + rise*(gi-m[i])
			vi := beta2*v[i] + rest*gi*gi
			m[i], v[i] = mi, vi
			p.set(i, p.at(i)*keep-size*(mi/(sqrt32(vi)/root+eps)))
		}
	})
	return nil
}

// parameter demands a trained parameter: float32, or bfloat16.
func (c *check) parameter(p tensor.Tensor) {
	dt := tensor.F32
	if p.DType == tensor.BF16 {
		dt = tensor.BF16
	}
	c.array("p", p, dt, p.Len())
}

// parameter is the elements of a trained parameter on the host.
type parameter struct {
	single []float32
	half   []uint16
	round  rng.Gen
}

func trained(p tensor.Tensor, round rng.Gen) parameter {
	if p.DType == tensor.BF16 {
		return parameter{half: tensor.Host[uint16](p), round: round}
	}
	return parameter{single: p.Float32s()}
}

func (p parameter) at(i int) float32 {
	if p.single != nil {
		return p.single[i]
	}
	return math.Float32frombits(uint32(p.half[i]) << 16)
}

// set writes element i. Sixteen random bits are added below what bfloat16 keeps.
func (p parameter) set(i int, x float32) {
	switch {
	case p.single != nil:
		p.single[i] = x
	case !finite(x):
		p.half[i] = dtype.BF16(x)
	default:
		p.half[i] = uint16((math.Float32bits(x) + uint32(uint16(p.round.Uint64(uint64(i))))) >> 16)
	}
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
