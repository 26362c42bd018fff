package ops

import (
	"math"

	"longship/gpu"
	"longship/gpu/tensor"
)

// FlowMix makes a training sample of flow matching:
//
//	XT = (1 - Sigma[b])·X0 + Sigma[b]·Noise,   Target = Noise - X0
//
// X0, Noise, XT, Target [B·S, C], Sigma [B] F32; row i belongs to sample i / S.
type FlowMix struct {
	XT, Target       tensor.Tensor
	X0, Noise, Sigma tensor.Tensor
}

// Name is "flow_mix".
func (FlowMix) Name() string { return "flow_mix" }

// Check demands shapes that fit.
func (k FlowMix) Check() error {
	var c check
	n, d := k.X0.Rows(), k.X0.Cols()
	c.matrix("x0", k.X0, n, d)
	c.matrix("noise", k.Noise, n, d)
	c.matrix("xt", k.XT, n, d)
	c.matrix("target", k.Target, n, d)
	c.array("sigma", k.Sigma, tensor.F32, k.Sigma.Len())
	c.divides("rows of x0 over samples", n, k.Sigma.Len())
	return c.err
}

// Host works row by row.
func (k FlowMix) Host(w gpu.Workers) error {
	x0, noise, xt, target, sigma := open(k.X0), open(k.Noise), open(k.XT), open(k.Target), k.Sigma.Float32s()
	eachRow(w, x0.n, x0.cols, func(i int) {
		s := sigma[i*len(sigma)/x0.n]
		a, e, out, t := x0.row(i), noise.row(i), xt.row(i), target.row(i)
		for j, v := range a {
			out[j] = (1-s)*v + s*e[j]
			t[j] = e[j] - v
		}
	})
	return nil
}

// FlowLoss is the weighted flow-matching loss and its gradient:
//
//	Samples[b] = Weight[b] · mean((V - Target)²)        over the sample's elements
//	Loss[0]    = mean(Samples)
//	DV         = GradScale · 2·Weight[b]·(V - Target) / (B·elements)
//
// V, Target, DV [B·S, C] F32, Weight and Samples [B] F32, Loss [1] F32. Sums are
// in float64, in a fixed order. GradScale is 1 / accumulation steps and has no
// default. DV may be absent (validation), and may be V. Flag [1] I32, where
// given, is set to 1 if the loss is not finite and otherwise left as it is:
// whoever starts a step clears it.
type FlowLoss struct {
	Loss, Samples, DV tensor.Tensor
	V, Target, Weight tensor.Tensor
	Flag              tensor.Tensor
	GradScale         float32
}

// Name is "flow_loss".
func (FlowLoss) Name() string { return "flow_loss" }

// Check demands shapes that fit.
func (k FlowLoss) Check() error {
	var c check
	n, d, b := k.V.Rows(), k.V.Cols(), k.Weight.Len()
	c.matrix("v", k.V, n, d)
	c.matrix("target", k.Target, n, d)
	c.optional("dv", k.DV, n, d)
	c.array("weight", k.Weight, tensor.F32, b)
	c.array("samples", k.Samples, tensor.F32, b)
	c.array("loss", k.Loss, tensor.F32, 1)
	c.divides("rows of v over samples", n, b)
	c.flag(k.Flag)
	return c.err
}

// Host sums rows, then rows to samples, then samples.
func (k FlowLoss) Host(w gpu.Workers) error {
	v, target, dv := open(k.V), open(k.Target), open(k.DV)
	weight, samples := k.Weight.Float32s(), k.Samples.Float32s()
	per := v.n / len(weight)
	count := float64(per * v.cols)
	sums := make([]float64, v.n)
	eachRow(w, v.n, v.cols, func(i int) {
		wb := weight[i/per]
		a, t := v.row(i), target.row(i)
		var sum float64
		for j, x := range a {
			d := float64(x) - float64(t[j])
			sum += d * d
		}
		sums[i] = sum
		if dv.valid() {
			scale := float32(float64(k.GradScale) * 2 * float64(wb) / (count * float64(len(weight))))
			out := dv.row(i)
			for j, x := range a {
				out[j] = scale * (x - t[j])
			}
		}
	})
	var total float64
	for b, wb := range weight {
		var sum float64
		for _, s := range sums[b*per : (b+1)*per] {
			sum += s
		}
		loss := float64(wb) * sum / count
		samples[b] = float32(loss)
		total += loss
	}
	loss := float32(total / float64(len(weight)))
	k.Loss.Float32s()[0] = loss
	if k.Flag.Valid() && !finite(loss) {
		tensor.Host[int32](k.Flag)[0] = 1
	}
	return nil
}

func finite(x float32) bool { return !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0) }
