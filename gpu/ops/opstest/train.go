package opstest

import (
	"math"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

func trainCases() []Case {
	return []Case{
		sinusoidCase(256), sinusoidCase(8),
		flowMixCase(2, 3, 5), flowLossCase(2, 3, 5, true), flowLossCase(3, 4, 2, false), flowLossCase(2, 3, 5, true).inPlace("dv", "v"), flowLossGradient(2, 3, 5),
		flagCase(1, 0), flagCase(math.Inf(1), 1), flagCase(math.NaN(), 1),
	}
}

func sinusoidCase(width int) Case {
	times := []float64{0, 1, 37.5, 300, 999, 1000}
	return Case{
		Name: named("sinusoid/%d", width),
		In:   []Arg{f32("t", List(times...), len(times))},
		Out:  []Arg{f32("y", nil, len(times), width)},
		Op:   func(t Tensors) gpu.Kernel { return ops.Sinusoid{Y: t["y"], T: t["t"]} },
		Want: func(v Values) Values {
			half := width / 2
			return Values{"y": filled(len(times)*width, func(i int) float64 {
				j := i % width
				phase := v["t"][i/width] * math.Exp(-math.Log(10000)*float64(j%half)/float64(half))
				if j < half {
					return math.Cos(phase)
				}
				return math.Sin(phase)
			})}
		},
		Tol: 1e-4, // of phases up to 1000 in float32
	}
}

func flowMixCase(b, s, d int) Case {
	return Case{
		Name: named("flow_mix/%dx%dx%d", b, s, d),
		In:   []Arg{x("x0", b*s, d), x("noise", b*s, d), f32("sigma", Uniform(0, 1), b)},
		Out:  []Arg{out("xt", b*s, d).gap(1), out("target", b*s, d)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.FlowMix{XT: t["xt"], Target: t["target"], X0: t["x0"], Noise: t["noise"], Sigma: t["sigma"]}
		},
		Want: func(v Values) Values {
			n := b * s * d
			return Values{
				"xt": filled(n, func(i int) float64 {
					g := v["sigma"][i/(s*d)]
					return (1-g)*v["x0"][i] + g*v["noise"][i]
				}),
				"target": filled(n, func(i int) float64 { return v["noise"][i] - v["x0"][i] }),
			}
		},
	}
}

// flowLosses computes the loss of each sample.
func flowLosses(v Values, per int) []float64 {
	return filled(len(v["weight"]), func(b int) float64 {
		var sum float64
		for i := b * per; i < (b+1)*per; i++ {
			d := v["v"][i] - v["target"][i]
			sum += d * d
		}
		return v["weight"][b] * sum / float64(per)
	})
}

func mean(v []float64) float64 {
	var sum float64
	for _, x := range v {
		sum += x / float64(len(v))
	}
	return sum
}

func flowLossCase(b, s, d int, gradient bool) Case {
	c := Case{
		Name: named("flow_loss/%dx%dx%d gradient=%t", b, s, d, gradient),
		In:   []Arg{x("v", b*s, d).gap(2), x("target", b*s, d), f32("weight", Uniform(0.5, 2), b)},
		Out:  []Arg{f32("loss", nil, 1), f32("samples", nil, b)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.FlowLoss{Loss: t["loss"], Samples: t["samples"], DV: t["dv"], V: t["v"], Target: t["target"], Weight: t["weight"], GradScale: 0.5}
		},
		Want: func(v Values) Values {
			l := flowLosses(v, s*d)
			return Values{"loss": {mean(l)}, "samples": l, "dv": filled(b*s*d, func(i int) float64 {
				return 0.5 * 2 * v["weight"][i/(s*d)] * (v["v"][i] - v["target"][i]) / float64(b*s*d)
			})}
		},
	}
	if gradient {
		c.Out = append(c.Out, out("dv", b*s, d))
	}
	return c
}

func flowLossGradient(b, s, d int) Case {
	c := flowLossCase(b, s, d, true)
	c.Name = "flow_loss/against differences"
	c.In = append(c.In, f32("dy", List(0.5), 1)) // GradScale
	c.Want = nil
	for i := range c.Out {
		c.Out[i].Scratch = c.Out[i].Name != "dv"
	}
	c.Grad = &Grad{Forward: func(v Values) []float64 { return []float64{mean(flowLosses(v, s*d))} }, DY: "dy", Of: map[string]string{"dv": "v"}}
	c.Tol = gradTol
	return c
}

// flagCase checks that a loss which is not finite raises the flag, and a finite one leaves it.
func flagCase(value, want float64) Case {
	c := flowLossCase(1, 1, 1, false)
	c.Name = named("flow_loss/flag of %g", value)
	c.In[0] = c.In[0].filled(List(value))
	c.Out = append(c.Out, Arg{Name: "flag", Shape: []int{1}, DType: tensor.I32, Fill: List(0)})
	c.Op = func(t Tensors) gpu.Kernel {
		return ops.FlowLoss{Loss: t["loss"], Samples: t["samples"], V: t["v"], Target: t["target"], Weight: t["weight"], Flag: t["flag"], GradScale: 1}
	}
	losses := c.Want
	c.Want = func(v Values) Values {
		w := losses(v)
		w["flag"] = []float64{want}
		return w
	}
	return c
}
