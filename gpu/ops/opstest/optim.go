package opstest

import (
	"math"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/rng"
)

const (
	lr, beta1, beta2, adamEps, decay = 1e-2, 0.9, 0.99, 1e-8, 0.1
)

func optimCases() []Case {
	var cases []Case
	for _, step := range []float64{1, 7} {
		for _, flag := range []float64{0, 1} {
			cases = append(cases,
				adamCase(300, tensor.F32, tensor.F32, step, flag), adamCase(300, tensor.BF16, tensor.BF16, step, flag),
				adam8Case(600, tensor.F32, tensor.F32, step, flag, true), adam8Case(600, tensor.F32, tensor.F32, step, flag, false),
				adam8Case(600, tensor.BF16, tensor.BF16, step, flag, true))
		}
	}
	for _, flag := range []float64{0, 1} {
		cases = append(cases, emaCase(33, flag), countCase(flag))
	}
	// Either type of gradient goes with either type of parameter.
	cases = append(cases, adamCase(300, tensor.BF16, tensor.F32, 2, 0), adam8Case(600, tensor.F32, tensor.BF16, 2, 0, true))
	for _, x := range []tensor.DType{tensor.F32, tensor.BF16} {
		cases = append(cases, squaresCase(x, 5, 7, 0), squaresCase(x, 5, 7, 3), squaresCase(x, 1, 40000, 0))
	}
	cases = append(cases, clipCase(4, 1), clipCase(0.25, 1))
	for _, c := range []Case{
		adamCase(1<<18, tensor.F32, tensor.F32, 3, 0), adamCase(1<<18, tensor.BF16, tensor.BF16, 3, 0),
		adam8Case(1<<18, tensor.F32, tensor.F32, 3, 0, true), adam8Case(1<<18, tensor.BF16, tensor.BF16, 3, 0, true),
		squaresCase(tensor.F32, 512, 1024, 0), squaresCase(tensor.BF16, 512, 1024, 0),
	} {
		c.Name, c.Want = "speed/"+c.Name, nil
		cases = append(cases, c)
	}
	return cases
}

func adamScalars(step, flag float64) []Arg {
	return []Arg{{Name: "step", Shape: []int{1}, DType: tensor.I32, Fill: List(step)}, f32("clip", List(0.5), 1),
		{Name: "flag", Shape: []int{1}, DType: tensor.I32, Fill: List(flag)}}
}

func adamParams(t Tensors) ops.AdamParams {
	return ops.AdamParams{LR: lr, Beta1: beta1, Beta2: beta2, Eps: adamEps, WeightDecay: decay, Step: t["step"], Clip: t["clip"], Flag: t["flag"]}
}

// round is the generator of stochastic rounding in all cases.
var round = rng.New(1, "test")

// exactly is the tolerance of a stochastically rounded output: the reference is
// rounded with the same random bits. Not the neighbour, but for elements far
// below the largest.
const exactly = 1.0 / 4096

// rounded rounds parameters of a type stochastically, as the ops say.
func rounded(p tensor.DType, v []float64) []float64 {
	if p != tensor.BF16 {
		return v
	}
	return filled(len(v), func(i int) float64 {
		noise := uint16(round.Uint64(uint64(i/4)) >> (16 * (i % 4)))
		return float64(math.Float32frombits((math.Float32bits(float32(v[i])) + uint32(noise)) & 0xffff0000))
	})
}

func adamCase(n int, p, g tensor.DType, step, flag float64) Case {
	return Case{
		Name: named("adamw/%d p=%s g=%s step=%g flag=%g", n, p, g, step, flag),
		In:   append(adamScalars(step, flag), Arg{Name: "g", Shape: []int{n}, DType: g, Fill: Normal(1)}),
		Out:  []Arg{{Name: "p", Shape: []int{n}, DType: p, Fill: Normal(1)}, f32("m", Normal(0.1), n), f32("v", Uniform(0, 0.1), n)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.AdamW{P: t["p"], G: t["g"], M: t["m"], V: t["v"], Adam: adamParams(t), Round: round}
		},
		TolBF16: exactly,
		Want: func(v Values) Values {
			if flag != 0 {
				return v
			}
			m := filled(n, func(i int) float64 { return beta1*v["m"][i] + (1-beta1)*0.5*v["g"][i] })
			s := filled(n, func(i int) float64 { return beta2*v["v"][i] + (1-beta2)*0.25*v["g"][i]*v["g"][i] })
			return Values{"m": m, "v": s, "p": rounded(p, filled(n, func(i int) float64 {
				mh, vh := m[i]/(1-math.Pow(beta1, step)), s[i]/(1-math.Pow(beta2, step))
				return v["p"][i]*(1-lr*decay) - lr*mh/(math.Sqrt(vh)+adamEps)
			}))}
		},
	}
}

// adam8Case checks the parameters and the absolute maxima of one step; the codes
// are checked against the reference numbers beside the op.
func adam8Case(n int, p, g tensor.DType, step, flag float64, after bool) Case {
	blocks := ops.Adam8Blocks(n)
	u8 := func(name string) Arg {
		return Arg{Name: name, Shape: []int{n}, DType: tensor.U8, Fill: Ints(256), Scratch: flag == 0}
	}
	return Case{
		Name: named("adamw8/%d p=%s g=%s step=%g flag=%g after=%t", n, p, g, step, flag, after),
		In:   append(adamScalars(step, flag), Arg{Name: "g", Shape: []int{n}, DType: g, Fill: Normal(1)}),
		Out:  []Arg{{Name: "p", Shape: []int{n}, DType: p, Fill: Normal(1)}, u8("mcode"), u8("vcode"), f32("mmax", Uniform(0.1, 1), blocks), f32("vmax", Uniform(0.1, 1), blocks)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.AdamW8{P: t["p"], G: t["g"], MCode: t["mcode"], VCode: t["vcode"], MMax: t["mmax"], VMax: t["vmax"],
				Adam: adamParams(t), DecayAfter: after, FixSign: after, Round: round}
		},
		TolBF16: exactly,
		Want: func(v Values) Values {
			if flag != 0 {
				return v
			}
			signed, unsigned := ops.SignedCode(), ops.UnsignedCode()
			w := Values{"mmax": make([]float64, blocks), "vmax": make([]float64, blocks)}
			w["p"] = filled(n, func(i int) float64 {
				b, g := i/ops.Adam8Block, 0.5*v["g"][i]
				m := beta1*float64(signed.Value[int(v["mcode"][i])])*v["mmax"][b] + (1-beta1)*g
				s := beta2*float64(unsigned.Value[int(v["vcode"][i])])*v["vmax"][b] + (1-beta2)*g*g
				w["mmax"][b], w["vmax"][b] = max(w["mmax"][b], math.Abs(m)), max(w["vmax"][b], s)
				update := lr * m / (1 - math.Pow(beta1, step)) / (math.Sqrt(s/(1-math.Pow(beta2, step))) + adamEps)
				if after {
					return (v["p"][i] - update) * (1 - lr*decay)
				}
				return v["p"][i]*(1-lr*decay) - update
			})
			w["p"] = rounded(p, w["p"])
			return w
		},
	}
}

func emaCase(n int, flag float64) Case {
	return Case{
		Name: named("ema/%d flag=%g", n, flag),
		In:   []Arg{f32("p", Normal(1), n), {Name: "flag", Shape: []int{1}, DType: tensor.I32, Fill: List(flag)}},
		Out:  []Arg{f32("shadow", Normal(1), n)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.EMA{Shadow: t["shadow"], P: t["p"], Decay: 0.9, Flag: t["flag"]}
		},
		Want: func(v Values) Values {
			if flag != 0 {
				return v
			}
			return Values{"shadow": filled(n, func(i int) float64 { return 0.9*v["shadow"][i] + 0.1*v["p"][i] })}
		},
	}
}

func countCase(flag float64) Case {
	return Case{
		Name: named("count_step/flag=%g", flag),
		In:   []Arg{{Name: "flag", Shape: []int{1}, DType: tensor.I32, Fill: List(flag)}},
		Out:  []Arg{{Name: "step", Shape: []int{1}, DType: tensor.I32, Fill: List(4)}},
		Op:   func(t Tensors) gpu.Kernel { return ops.CountStep{Step: t["step"], Flag: t["flag"]} },
		Want: func(Values) Values { return Values{"step": {5 - flag}} },
	}
}

func squaresCase(x tensor.DType, n, d, gap int) Case {
	return Case{
		Name: named("sum_squares/%s %dx%d gap=%d", x, n, d, gap),
		In:   []Arg{Arg{Name: "x", Shape: []int{n, d}, DType: x, Fill: Normal(1)}.gap(gap)},
		Out:  []Arg{{Name: "sum", Shape: []int{1}, DType: tensor.F64, Fill: List(2)}},
		Op:   func(t Tensors) gpu.Kernel { return ops.SumSquares{Sum: t["sum"], X: t["x"]} },
		Want: func(v Values) Values {
			sum := 2.0
			for _, x := range v["x"] {
				sum += x * x
			}
			return Values{"sum": {sum}}
		},
		Tol: 1e-12,
	}
}

func clipCase(sum, limit float64) Case {
	return Case{
		Name: named("clip_norm/%g to %g", sum, limit),
		In:   []Arg{{Name: "sum", Shape: []int{1}, DType: tensor.F64, Fill: List(sum)}},
		Out:  []Arg{f32("coef", nil, 1), f32("norm", nil, 1)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.ClipNorm{Coef: t["coef"], Norm: t["norm"], Sum: t["sum"], Max: limit}
		},
		Want: func(Values) Values {
			norm := math.Sqrt(sum)
			return Values{"norm": {norm}, "coef": {min(1, limit/(norm+1e-6))}}
		},
	}
}
