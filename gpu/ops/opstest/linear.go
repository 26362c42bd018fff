package opstest

import (
	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

func linearCases() []Case {
	var cases []Case
	for _, s := range [][3]int{{1, 1, 1}, {3, 5, 2}, {70, 33, 129}, {130, 150, 24}, {9, 7, 600}} {
		for form := range 4 {
			for _, gap := range []int{0, 3} {
				cases = append(cases, gemmCase(s[0], s[1], s[2], form&1 != 0, form&2 != 0, gap, 0))
			}
		}
	}
	cases = append(cases, gemmCase(20, 30, 40, false, true, 1, 1), gemmCase(20, 30, 40, true, false, 4, -0.5))
	for _, dt := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.E5M2, tensor.E4M3, tensor.I8} {
		for _, y := range []tensor.DType{tensor.F32, tensor.BF16} {
			cases = append(cases, expandCase(dt, y, 51, 3, true), expandCase(dt, y, 51, 3, false), expandCase(dt, y, 48, 8, true))
		}
		cases = append(cases, lookupCase(dt))
	}
	for _, from := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.E5M2, tensor.E4M3} {
		for _, to := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.E5M2, tensor.E4M3} {
			cases = append(cases, castCase(from, to, 33, 1), castCase(from, to, 40, 8))
		}
	}
	return append(cases, linearSpeed()...)
}

func gemmCase(m, n, k int, ta, tb bool, gap int, beta float64) Case {
	shape := func(r, c int, trans bool) []int {
		if trans {
			return []int{c, r}
		}
		return []int{r, c}
	}
	const alpha = 0.75
	c := out("c", m, n)
	if beta != 0 {
		c = c.filled(Normal(1))
	}
	return Case{
		Name: named("gemm/%dx%dx%d ta=%t tb=%t gap=%d beta=%g", m, n, k, ta, tb, gap, beta),
		In:   []Arg{x("a", shape(m, k, ta)...).gap(gap), x("b", shape(k, n, tb)...).gap(gap)},
		Out:  []Arg{c.gap(gap)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.Gemm{C: t["c"], A: t["a"], B: t["b"], TransA: ta, TransB: tb, Alpha: alpha, Beta: float32(beta)}
		},
		Want: func(v Values) Values {
			y := make([]float64, m*n)
			for i := range m {
				for j := range n {
					var sum float64
					for p := range k {
						ai, bi := i*k+p, p*n+j
						if ta {
							ai = p*m + i
						}
						if tb {
							bi = j*k + p
						}
						sum += v["a"][ai] * v["b"][bi]
					}
					y[i*n+j] = alpha * sum
					if beta != 0 {
						y[i*n+j] += beta * v["c"][i*n+j]
					}
				}
			}
			return Values{"c": y}
		},
	}
}

// weightFill is a content that suits a stored weight's type.
func weightFill(dt tensor.DType) Fill {
	if dt == tensor.I8 {
		return Ints(127)
	}
	return Normal(1)
}

func expandCase(dt, to tensor.DType, cols, gap int, scaled bool) Case {
	const rows = 37
	in := []Arg{{Name: "w", Shape: []int{rows, cols}, DType: dt, Fill: weightFill(dt)}}
	if scaled {
		in = append(in, f32("scale", Uniform(0.01, 2), rows))
	}
	return Case{
		Name: named("expand/%s to %s 37x%d gap=%d scaled=%t", dt, to, cols, gap, scaled),
		In:   in,
		Out:  []Arg{{Name: "y", Shape: []int{rows, cols}, DType: to, Gap: gap}},
		Op: func(t Tensors) gpu.Kernel {
			return ops.Expand{Y: t["y"], W: tensor.Weight{Data: t["w"], Scale: t["scale"]}}
		},
		Want: func(v Values) Values { return Values{"y": expanded(v, cols)} },
	}
}

// expanded is w times its row's scale.
func expanded(v Values, cols int) []float64 {
	y := append([]float64(nil), v["w"]...)
	if s, ok := v["scale"]; ok {
		for i := range y {
			y[i] *= s[i/cols]
		}
	}
	return y
}

func lookupCase(dt tensor.DType) Case {
	const rows, cols, n = 19, 24, 7
	return Case{
		Name: named("lookup/%s", dt),
		In: []Arg{{Name: "w", Shape: []int{rows, cols}, DType: dt, Fill: weightFill(dt)}, f32("scale", Uniform(0.01, 2), rows),
			{Name: "ids", Shape: []int{n}, DType: tensor.I32, Fill: Ints(rows)}},
		Out: []Arg{out("y", n, cols).gap(2)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.Lookup{Y: t["y"], W: tensor.Weight{Data: t["w"], Scale: t["scale"]}, IDs: t["ids"]}
		},
		Want: func(v Values) Values {
			table := expanded(v, cols)
			var y []float64
			for _, id := range v["ids"] {
				y = append(y, table[int(id)*cols:(int(id)+1)*cols]...)
			}
			return Values{"y": y}
		},
	}
}

func castCase(from, to tensor.DType, cols, gap int) Case {
	tol := map[tensor.DType]float64{tensor.F32: 0, tensor.BF16: 1.0 / 256, tensor.F16: 1.0 / 2048, tensor.E5M2: 1.0 / 8, tensor.E4M3: 1.0 / 16}[to]
	return Case{
		Name: named("cast/%s to %s 5x%d gap=%d", from, to, cols, gap),
		In:   []Arg{{Name: "x", Shape: []int{5, cols}, DType: from, Gap: gap, Fill: Normal(3)}},
		Out:  []Arg{{Name: "y", Shape: []int{5, cols}, DType: to, Gap: 2 * gap}},
		Op:   func(t Tensors) gpu.Kernel { return ops.Cast{Y: t["y"], X: t["x"]} },
		Want: func(v Values) Values { return Values{"y": v["x"]} },
		Tol:  tol,
	}
}

// linearSpeed has the products of a small FLUX.2 (width 512) at 512 tokens,
// those of an adapter, and the expansion of a weight.
func linearSpeed() []Case {
	var cases []Case
	for _, s := range []struct {
		name    string
		m, n, k int
		ta, tb  bool
	}{
		{"linear", 512, 2048, 512, false, true},
		{"linear dx", 512, 512, 2048, false, false},
		{"lora down", 512, 16, 512, false, true},
		{"lora up", 512, 2048, 16, false, true},
		{"lora dA", 16, 512, 512, true, false},
	} {
		c := gemmCase(s.m, s.n, s.k, s.ta, s.tb, 0, 0)
		c.Name, c.Want = named("speed/%s %dx%dx%d", s.name, s.m, s.n, s.k), nil
		cases = append(cases, c)
	}
	for _, dt := range []tensor.DType{tensor.E5M2, tensor.BF16, tensor.I8} {
		cases = append(cases, Case{
			Name: named("speed/expand %s 1024x1024", dt),
			In:   []Arg{{Name: "w", Shape: []int{1024, 1024}, DType: dt, Fill: weightFill(dt)}, f32("scale", Uniform(0.01, 2), 1024)},
			Out:  []Arg{f32("y", nil, 1024, 1024)},
			Op: func(t Tensors) gpu.Kernel {
				return ops.Expand{Y: t["y"], W: tensor.Weight{Data: t["w"], Scale: t["scale"]}}
			},
		})
	}
	return cases
}
