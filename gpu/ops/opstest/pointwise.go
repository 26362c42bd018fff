package opstest

import (
	"math"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

func swiglu(v Values) []float64 {
	return filled(len(v["gate"]), func(i int) float64 { return silu(v["gate"][i]) * v["up"][i] })
}

// pointwiseCases has every call twice: rows that do not divide evenly, and rows
// that start on 16 bytes and hold whole vectors.
func pointwiseCases() []Case {
	cases := append(pointwise(7, 13, 1), pointwise(7, 64, 8)...)
	for _, d := range []int{4, 64} {
		cases = append(cases, concatCase(2, 3, 5, d), splitCase(2, 3, 5, d))
	}
	big := func(name string) Arg { return x(name, 512, 1024).gap(1024) }
	return append(cases,
		concatCase(1, 1, 2, 3), splitCase(3, 1, 1, 2),
		transposeCase(1, 5, 7), transposeCase(3, 4, 2), transposeCase(2, 40, 70),
		Case{Name: "speed/swiglu 512x1024", In: []Arg{big("gate"), big("up")}, Out: []Arg{out("y", 512, 1024)},
			Op: func(t Tensors) gpu.Kernel { return ops.SwiGLU{Y: t["y"], Gate: t["gate"], Up: t["up"]} }},
		Case{Name: "speed/swiglu_backward 512x1024", In: []Arg{big("gate"), big("up"), x("dy", 512, 1024)}, Out: []Arg{out("dgate", 512, 1024), out("dup", 512, 1024)},
			Op: func(t Tensors) gpu.Kernel {
				return ops.SwiGLUBackward{DGate: t["dgate"], DUp: t["dup"], DY: t["dy"], Gate: t["gate"], Up: t["up"]}
			}})
}

// pointwise has calls on n rows of d columns; gaps between rows are multiples of unit.
func pointwise(n, d, unit int) []Case {
	each := func(name string, f func(v Values, i int) float64, in []Arg, y Arg, op func(t Tensors) gpu.Kernel) Case {
		return Case{Name: named("%s of %d", name, d), In: in, Out: []Arg{y}, Op: op, Want: func(v Values) Values {
			return Values{y.Name: filled(y.len(), func(i int) float64 { return f(v, i) })}
		}}
	}
	wide := func(name string) Arg { return x(name, n, d).gap(d).filled(Normal(4)) }
	return []Case{
		each("swiglu/column ranges", func(v Values, i int) float64 { return swiglu(v)[i] },
			[]Arg{wide("gate"), wide("up")}, out("y", n, d),
			func(t Tensors) gpu.Kernel { return ops.SwiGLU{Y: t["y"], Gate: t["gate"], Up: t["up"]} }),
		{
			Name: named("swiglu_backward/column ranges of %d", d),
			In:   []Arg{wide("gate"), wide("up"), x("dy", n, d)},
			Out:  []Arg{out("dgate", n, d).gap(d), out("dup", n, d).gap(d)},
			Op: func(t Tensors) gpu.Kernel {
				return ops.SwiGLUBackward{DGate: t["dgate"], DUp: t["dup"], DY: t["dy"], Gate: t["gate"], Up: t["up"]}
			},
			Grad: &Grad{Forward: swiglu, DY: "dy", Of: map[string]string{"dgate": "gate", "dup": "up"}},
			Tol:  gradTol,
		},
		each("silu/in place", func(v Values, i int) float64 { return silu(v["x"][i]) },
			[]Arg{wide("x")}, out("y", n, d).over("x"), func(t Tensors) gpu.Kernel { return ops.SiLU{Y: t["y"], X: t["x"]} }),
		each("swiglu/in place", func(v Values, i int) float64 { return swiglu(v)[i] },
			[]Arg{wide("gate"), wide("up")}, out("y", n, d).over("gate"),
			func(t Tensors) gpu.Kernel { return ops.SwiGLU{Y: t["y"], Gate: t["gate"], Up: t["up"]} }),
		{
			Name: named("silu_backward/in place of %d", d),
			In:   []Arg{wide("x"), x("dy", n, d)},
			Out:  []Arg{out("dx", n, d).over("dy")},
			Op:   func(t Tensors) gpu.Kernel { return ops.SiLUBackward{DX: t["dx"], DY: t["dy"], X: t["x"]} },
			Grad: &Grad{Forward: func(v Values) []float64 {
				return filled(len(v["x"]), func(i int) float64 { return silu(v["x"][i]) })
			}, DY: "dy", Of: map[string]string{"dx": "x"}},
			Tol: gradTol,
		},
		each("zero/f32", func(Values, int) float64 { return 0 }, nil, out("y", n, d).gap(3*unit),
			func(t Tensors) gpu.Kernel { return ops.Zero{Y: t["y"]} }),
		each("zero/u8", func(Values, int) float64 { return 0 }, nil, Arg{Name: "y", Shape: []int{300}, DType: tensor.U8},
			func(t Tensors) gpu.Kernel { return ops.Zero{Y: t["y"]} }),
		each("copy/strided", func(v Values, i int) float64 { return v["x"][i] }, []Arg{x("x", n, d).gap(unit)}, out("y", n, d).gap(4*unit),
			func(t Tensors) gpu.Kernel { return ops.Copy{Y: t["y"], X: t["x"]} }),
		each("copy/e5m2", func(v Values, i int) float64 { return v["x"][i] },
			[]Arg{{Name: "x", Shape: []int{n, d}, DType: tensor.E5M2, Fill: Normal(1)}}, Arg{Name: "y", Shape: []int{n, d}, DType: tensor.E5M2, Gap: unit},
			func(t Tensors) gpu.Kernel { return ops.Copy{Y: t["y"], X: t["x"]} }),
		each("add/strided", func(v Values, i int) float64 { return v["a"][i] + v["b"][i] },
			[]Arg{x("a", n, d).gap(2 * unit), x("b", n, d)}, out("y", n, d).gap(unit),
			func(t Tensors) gpu.Kernel { return ops.Add{Y: t["y"], A: t["a"], B: t["b"]} }),
		each("add_scaled/strided", func(v Values, i int) float64 { return v["y"][i] - 0.5*v["x"][i] },
			[]Arg{x("x", n, d).gap(2 * unit)}, x("y", n, d).gap(unit),
			func(t Tensors) gpu.Kernel { return ops.AddScaled{Y: t["y"], X: t["x"], Alpha: -0.5} }),
		each("scale/by a number", func(v Values, i int) float64 { return 0.25 * v["x"][i] },
			[]Arg{x("x", n, d).gap(2 * unit)}, out("y", n, d).over("x"),
			func(t Tensors) gpu.Kernel { return ops.Scale{Y: t["y"], X: t["x"], Alpha: 0.25} }),
		each("scale/by a tensor", func(v Values, i int) float64 { return 2 * v["by"][0] * v["x"][i] },
			[]Arg{x("x", n, d), f32("by", Normal(1), 1)}, out("y", n, d),
			func(t Tensors) gpu.Kernel { return ops.Scale{Y: t["y"], X: t["x"], Alpha: 2, By: t["by"]} }),
		each("add_bias/bf16", func(v Values, i int) float64 { return v["x"][i] + v["bias"][i%d] },
			[]Arg{x("x", n, d).gap(2 * unit), {Name: "bias", Shape: []int{d}, DType: tensor.BF16, Fill: Normal(1)}}, out("y", n, d),
			func(t Tensors) gpu.Kernel { return ops.AddBias{Y: t["y"], X: t["x"], Bias: t["bias"]} }),
	}
}

// joined puts a before b in every sample.
func joined(a, b []float64, batch int) []float64 {
	var y []float64
	na, nb := len(a)/batch, len(b)/batch
	for i := range batch {
		y = append(append(y, a[i*na:(i+1)*na]...), b[i*nb:(i+1)*nb]...)
	}
	return y
}

func concatCase(batch, sa, sb, d int) Case {
	return Case{
		Name: named("concat/%dx(%d+%d)x%d", batch, sa, sb, d),
		In:   []Arg{x("a", batch*sa, d).gap(1), x("b", batch*sb, d)},
		Out:  []Arg{out("y", batch*(sa+sb), d).gap(2)},
		Op:   func(t Tensors) gpu.Kernel { return ops.Concat{Y: t["y"], A: t["a"], B: t["b"], Batch: batch} },
		Want: func(v Values) Values { return Values{"y": joined(v["a"], v["b"], batch)} },
	}
}

func splitCase(batch, sa, sb, d int) Case {
	return Case{
		Name: named("split/%dx(%d+%d)x%d", batch, sa, sb, d),
		In:   []Arg{x("x", batch*(sa+sb), d).gap(1)},
		Out:  []Arg{out("a", batch*sa, d).gap(2), out("b", batch*sb, d)},
		Op:   func(t Tensors) gpu.Kernel { return ops.Split{A: t["a"], B: t["b"], X: t["x"], Batch: batch} },
		Want: func(v Values) Values {
			var a, b []float64
			per := (sa + sb) * d
			for i := range batch {
				a = append(a, v["x"][i*per:i*per+sa*d]...)
				b = append(b, v["x"][i*per+sa*d:(i+1)*per]...)
			}
			return Values{"a": a, "b": b}
		},
	}
}

func transposeCase(batch, r, c int) Case {
	return Case{
		Name: named("transpose/%dx%dx%d", batch, r, c),
		In:   []Arg{x("x", batch*r, c).gap(1)},
		Out:  []Arg{out("y", batch*c, r).gap(2)},
		Op:   func(t Tensors) gpu.Kernel { return ops.Transpose{Y: t["y"], X: t["x"], Batch: batch} },
		Want: func(v Values) Values {
			return Values{"y": filled(batch*r*c, func(i int) float64 {
				b, j, k := i/(r*c), i%(r*c)/r, i%r
				return v["x"][b*r*c+k*c+j]
			})}
		},
	}
}
