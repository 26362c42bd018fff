package opstest

import (
	"math"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// tables are cos and sin of seq positions; half repeats angles by halves, else by pairs.
func tables(seq, hd int, half bool) []Arg {
	angle := func(i int) float64 {
		s, j := i/hd, i%hd
		pair := j / 2
		if half {
			pair = j % (hd / 2)
		}
		return float64(s+1) * math.Pow(2000, -2*float64(pair)/float64(hd))
	}
	return []Arg{
		saved("cos", func(Values) []float64 { return filled(seq*hd, func(i int) float64 { return math.Cos(angle(i)) }) }, seq, hd),
		saved("sin", func(Values) []float64 { return filled(seq*hd, func(i int) float64 { return math.Sin(angle(i)) }) }, seq, hd),
	}
}

func filled(n int, f func(i int) float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = f(i)
	}
	return v
}

// rotated applies RoPE to rows of width cols.
func rotated(x []float64, v Values, cols, hd int, half, inverse bool) []float64 {
	y := make([]float64, len(x))
	seq := len(v["cos"]) / hd
	for i := range x {
		row, j := i/cols, i%cols%hd
		at := row%seq*hd + j
		partner, sign := i^1, -1.0
		if i&1 == 1 {
			sign = 1
		}
		if half {
			partner, sign = i+hd/2, -1
			if j >= hd/2 {
				partner, sign = i-hd/2, 1
			}
		}
		if inverse {
			sign = -sign
		}
		y[i] = x[i]*v["cos"][at] + sign*x[partner]*v["sin"][at]
	}
	return y
}

// positions is how many rows of n one pass of the tables covers.
func positions(n int) int {
	if n%2 == 0 {
		return n / 2
	}
	return n
}

func ropeCase(n, heads, hd, gap int, half, inverse bool) Case {
	return Case{
		Name: named("rope/%dx%dx%d gap=%d half=%t inverse=%t", n, heads, hd, gap, half, inverse),
		In:   append(tables(positions(n), hd, half), x("x", n, heads*hd).gap(gap)),
		Out:  []Arg{out("y", n, heads*hd).over("x")},
		Op: func(t Tensors) gpu.Kernel {
			return ops.RoPE{Y: t["y"], X: t["x"], Cos: t["cos"], Sin: t["sin"], Half: half, Inverse: inverse}
		},
		Want: func(v Values) Values { return Values{"y": rotated(v["x"], v, heads*hd, hd, half, inverse)} },
	}
}

func rmsRope(v Values, cols, hd int) (y, rstd []float64) {
	y, rstd = rmsNorm(v)
	return rotated(y, v, cols, hd, false, false), rstd
}

func rmsRopeCase(n, heads, hd, gap int) Case {
	return Case{
		Name: named("rms_norm_rope/%dx%dx%d gap=%d", n, heads, hd, gap),
		In:   append(tables(positions(n), hd, false), x("x", n, heads*hd).gap(gap), Arg{Name: "w", Shape: []int{hd}, DType: tensor.BF16, Fill: Uniform(0.5, 1.5)}),
		Out:  []Arg{out("y", n, heads*hd), f32("rstd", nil, n, heads)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.RMSNormRoPE{Y: t["y"], X: t["x"], W: t["w"], RStd: t["rstd"], Cos: t["cos"], Sin: t["sin"], Eps: eps}
		},
		Want: func(v Values) Values {
			y, r := rmsRope(v, heads*hd, hd)
			return Values{"y": y, "rstd": r}
		},
	}
}

func rmsRopeBackwardCase(n, heads, hd, gap int) Case {
	return Case{
		Name: named("rms_norm_rope_backward/%dx%dx%d gap=%d", n, heads, hd, gap),
		In: append(tables(positions(n), hd, false), x("x", n, heads*hd).gap(gap), x("dy", n, heads*hd), f32("w", Uniform(0.5, 1.5), hd),
			savedRStd(n, heads)),
		Out: []Arg{out("dx", n, heads*hd).gap(gap), f32("dw", Normal(1), hd)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.RMSNormRoPEBackward{DX: t["dx"], DY: t["dy"], X: t["x"], W: t["w"], RStd: t["rstd"], Cos: t["cos"], Sin: t["sin"], DW: t["dw"]}
		},
		Grad: &Grad{Forward: func(v Values) []float64 { y, _ := rmsRope(v, heads*hd, hd); return y }, DY: "dy", Of: map[string]string{"dx": "x", "dw": "w"}},
		Tol:  gradTol,
	}
}
