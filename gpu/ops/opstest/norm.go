package opstest

import (
	"math"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

const eps = 1e-6

func normCases() []Case {
	var cases []Case
	for _, s := range []struct{ batch, seq, d, gap int }{{1, 1, 3, 0}, {2, 3, 5, 2}, {3, 4, 16, 0}, {2, 3, 64, 8}, {1, 1, 1096, 8}} {
		cases = append(cases,
			layerNormCase(s.batch, s.seq, s.d, s.gap, true), layerNormCase(s.batch, s.seq, s.d, s.gap, false),
			layerNormBackwardCase(s.batch, s.seq, s.d, s.gap, false), layerNormBackwardCase(s.batch, s.seq, s.d, s.gap, true),
			gateCase(s.batch, s.seq, s.d, s.gap), gateBackwardCase(s.batch, s.seq, s.d, s.gap))
	}
	for _, s := range []struct{ n, heads, hd, gap int }{{1, 1, 2, 0}, {6, 3, 4, 5}, {4, 1, 16, 0}, {3, 2, 64, 8}, {2, 3, 128, 0}} {
		for _, w := range []tensor.DType{tensor.F32, tensor.BF16} {
			cases = append(cases, rmsCase(s.n, s.heads, s.hd, s.gap, w))
		}
		cases = append(cases, rmsBackwardCase(s.n, s.heads, s.hd, s.gap, true), rmsBackwardCase(s.n, s.heads, s.hd, s.gap, false),
			rmsRopeCase(s.n, s.heads, s.hd, s.gap), rmsRopeBackwardCase(s.n, s.heads, s.hd, s.gap))
		for form := range 4 {
			cases = append(cases, ropeCase(s.n, s.heads, s.hd, s.gap, form&1 != 0, form&2 != 0))
		}
	}
	cases = append(cases, layerNormCase(2, 3, 5, 1, true).inPlace("y", "x"), layerNormBackwardCase(2, 3, 5, 0, false).inPlace("dx", "dy"),
		rmsCase(4, 2, 8, 1, tensor.F32).inPlace("y", "x"), rmsRopeCase(4, 2, 8, 0).inPlace("y", "x"), rmsRopeBackwardCase(4, 2, 8, 0).inPlace("dx", "dy"),
		residualCase(6, 5), residualCase(6, 64), rmsCase(2, 1, 2560, 0, tensor.F32), rmsCase(2, 1, 4, 0, tensor.BF16), layerNormCase(1, 2, 6144, 0, true))
	for _, c := range []Case{layerNormCase(2, 256, 512, 0, true), layerNormBackwardCase(2, 256, 512, 0, false), rmsRopeCase(512, 4, 128, 0), rmsRopeBackwardCase(512, 4, 128, 0)} {
		c.Name, c.Want, c.Grad = "speed/"+c.Name, nil, nil
		cases = append(cases, c)
	}
	return cases
}

// layerNorm computes y, mean and rstd of rows of width d.
func layerNorm(v Values, d, batch int) (y, mean, rstd []float64) {
	n := len(v["x"]) / d
	for i := range n {
		row := v["x"][i*d : (i+1)*d]
		var mu, sq float64
		for _, x := range row {
			mu += x / float64(d)
		}
		for _, x := range row {
			sq += (x - mu) * (x - mu) / float64(d)
		}
		r := 1 / math.Sqrt(sq+eps)
		mean, rstd = append(mean, mu), append(rstd, r)
		for j, x := range row {
			h := (x - mu) * r
			if v["scale"] != nil {
				at := i/(n/batch)*d + j
				h = (1+v["scale"][at])*h + v["shift"][at]
			}
			y = append(y, h)
		}
	}
	return y, mean, rstd
}

func layerNormCase(batch, seq, d, gap int, modulated bool) Case {
	n := batch * seq
	c := Case{
		Name: named("layer_norm/%dx%dx%d gap=%d modulated=%t", batch, seq, d, gap, modulated),
		In:   []Arg{x("x", n, d).gap(gap)},
		Out:  []Arg{out("y", n, d).gap(gap), f32("mean", nil, n), f32("rstd", nil, n)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.LayerNorm{Y: t["y"], X: t["x"], Shift: t["shift"], Scale: t["scale"], Mean: t["mean"], RStd: t["rstd"], Eps: eps}
		},
		Want: func(v Values) Values {
			y, mean, rstd := layerNorm(v, d, batch)
			return Values{"y": y, "mean": mean, "rstd": rstd}
		},
	}
	if modulated {
		c.In = append(c.In, x("shift", batch, d).gap(2*d), x("scale", batch, d).gap(2*d))
	}
	return c
}

func layerNormBackwardCase(batch, seq, d, gap int, accumulate bool) Case {
	n := batch * seq
	dx := out("dx", n, d).gap(gap)
	if accumulate {
		dx = dx.filled(Normal(1))
	}
	return Case{
		Name: named("layer_norm_backward/%dx%dx%d gap=%d accumulate=%t", batch, seq, d, gap, accumulate),
		In: []Arg{x("x", n, d).gap(gap), x("dy", n, d).gap(gap), x("scale", batch, d).gap(d), x("shift", batch, d),
			saved("mean", func(v Values) []float64 { _, m, _ := layerNorm(v, d, batch); return m }, n),
			saved("rstd", func(v Values) []float64 { _, _, r := layerNorm(v, d, batch); return r }, n)},
		Out: []Arg{dx, f32("dscale", Normal(1), batch, d), f32("dshift", Normal(1), batch, d)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.LayerNormBackward{DX: t["dx"], DY: t["dy"], X: t["x"], Scale: t["scale"], Mean: t["mean"], RStd: t["rstd"],
				DScale: t["dscale"], DShift: t["dshift"], Accumulate: accumulate}
		},
		Grad: &Grad{
			Forward: func(v Values) []float64 { y, _, _ := layerNorm(v, d, batch); return y },
			DY:      "dy", Of: map[string]string{"dx": "x", "dscale": "scale", "dshift": "shift"},
		},
		Tol: gradTol,
	}
}

// gradTol allows for the float32 inputs' saved statistics and for the finite differences.
const gradTol = 2e-5

func gated(v Values, d int) []float64 {
	y := append([]float64(nil), v["x"]...)
	per := len(y) / (len(v["gate"]) / d)
	for i := range y {
		y[i] += v["gate"][i/per*d+i%d] * v["h"][i]
	}
	return y
}

func gateCase(batch, seq, d, gap int) Case {
	n := batch * seq
	return Case{
		Name: named("gate_residual/%dx%dx%d gap=%d in place", batch, seq, d, gap),
		In:   []Arg{x("x", n, d).gap(gap), x("h", n, d), x("gate", batch, d).gap(5 * d)},
		Out:  []Arg{out("y", n, d).over("x")},
		Op: func(t Tensors) gpu.Kernel {
			return ops.GateResidual{Y: t["y"], X: t["x"], H: t["h"], Gate: t["gate"]}
		},
		Want: func(v Values) Values { return Values{"y": gated(v, d)} },
	}
}

// residualCase is the residual without a gate.
func residualCase(n, d int) Case {
	return Case{
		Name: named("gate_residual/%dx%d no gate", n, d),
		In:   []Arg{x("x", n, d), x("h", n, d).gap(1)},
		Out:  []Arg{out("y", n, d).gap(2)},
		Op:   func(t Tensors) gpu.Kernel { return ops.GateResidual{Y: t["y"], X: t["x"], H: t["h"]} },
		Want: func(v Values) Values {
			return Values{"y": filled(n*d, func(i int) float64 { return v["x"][i] + v["h"][i] })}
		},
	}
}

func gateBackwardCase(batch, seq, d, gap int) Case {
	n := batch * seq
	return Case{
		Name: named("gate_residual_backward/%dx%dx%d gap=%d", batch, seq, d, gap),
		In:   []Arg{x("x", n, d), x("dy", n, d).gap(gap), x("h", n, d), x("gate", batch, d).gap(d)},
		Out:  []Arg{out("dh", n, d).over("dy"), f32("dgate", Normal(1), batch, d)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.GateResidualBackward{DH: t["dh"], DY: t["dy"], Gate: t["gate"], H: t["h"], DGate: t["dgate"]}
		},
		Grad: &Grad{Forward: func(v Values) []float64 { return gated(v, d) }, DY: "dy", Of: map[string]string{"dh": "h", "dgate": "gate"}},
		Tol:  gradTol,
	}
}

// rmsNorm computes y and rstd of groups of len(w) columns.
func rmsNorm(v Values) (y, rstd []float64) {
	w := v["w"]
	for at := 0; at < len(v["x"]); at += len(w) {
		var sq float64
		for _, x := range v["x"][at : at+len(w)] {
			sq += x * x / float64(len(w))
		}
		r := 1 / math.Sqrt(sq+eps)
		rstd = append(rstd, r)
		for j, wj := range w {
			y = append(y, v["x"][at+j]*r*wj)
		}
	}
	return y, rstd
}

func rmsCase(n, heads, hd, gap int, w tensor.DType) Case {
	return Case{
		Name: named("rms_norm/%dx%dx%d gap=%d w=%s", n, heads, hd, gap, w),
		In:   []Arg{x("x", n, heads*hd).gap(gap), {Name: "w", Shape: []int{hd}, DType: w, Fill: Uniform(0.5, 1.5)}},
		Out:  []Arg{out("y", n, heads*hd).gap(gap), f32("rstd", nil, n, heads)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.RMSNorm{Y: t["y"], X: t["x"], W: t["w"], RStd: t["rstd"], Eps: eps}
		},
		Want: func(v Values) Values {
			y, r := rmsNorm(v)
			return Values{"y": y, "rstd": r}
		},
	}
}

func savedRStd(n, heads int) Arg {
	return saved("rstd", func(v Values) []float64 { _, r := rmsNorm(v); return r }, n, heads)
}

func rmsBackwardCase(n, heads, hd, gap int, accumulate bool) Case {
	dx := out("dx", n, heads*hd).over("dy")
	if accumulate {
		dx = out("dx", n, heads*hd).gap(gap).filled(Normal(1))
	}
	return Case{
		Name: named("rms_norm_backward/%dx%dx%d gap=%d accumulate=%t", n, heads, hd, gap, accumulate),
		In:   []Arg{x("x", n, heads*hd).gap(gap), x("dy", n, heads*hd).gap(gap), f32("w", Uniform(0.5, 1.5), hd), savedRStd(n, heads)},
		Out:  []Arg{dx, f32("dw", Normal(1), hd)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.RMSNormBackward{DX: t["dx"], DY: t["dy"], X: t["x"], W: t["w"], RStd: t["rstd"], DW: t["dw"], Accumulate: accumulate}
		},
		Grad: &Grad{Forward: func(v Values) []float64 { y, _ := rmsNorm(v); return y }, DY: "dy", Of: map[string]string{"dx": "x", "dw": "w"}},
		Tol:  gradTol,
	}
}
