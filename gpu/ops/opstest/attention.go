package opstest

import (
	"math"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// shape is the geometry of an attention call.
type shape struct {
	batch, heads, kv int
	sq, sk, hd       int
	causal           bool
	ranges           []float64 // of valid keys, from and to by sample
	scale            float64
	aligned          bool // all rows start on 16 bytes
}

func (s shape) name() string {
	n := named("b%d h%d/%d s%d/%d hd%d", s.batch, s.heads, s.kv, s.sq, s.sk, s.hd)
	if s.causal {
		n += " causal"
	}
	if s.ranges != nil {
		n += " ranges"
	}
	return n
}

// spread spreads the rows of an output, by whole 16 bytes where that is asked.
func (s shape) spread(a Arg, gap int) Arg {
	if s.aligned {
		gap *= 8
	}
	return a.gap(gap)
}

// softmax computes the naive attention: outputs and log-sum-exps.
func (s shape) softmax(v Values) (o, lse []float64) {
	o, lse = make([]float64, s.batch*s.sq*s.heads*s.hd), make([]float64, s.batch*s.heads*s.sq)
	scale := s.scaling()
	for b := range s.batch {
		for h := range s.heads {
			g := h / (s.heads / s.kv)
			for i := range s.sq {
				q := v["q"][((b*s.sq+i)*s.heads+h)*s.hd:][:s.hd]
				from, to := s.seen(b, i)
				score := func(j int) float64 {
					var dot float64
					for d, k := range v["k"][((b*s.sk+j)*s.kv+g)*s.hd:][:s.hd] {
						dot += q[d] * k
					}
					return dot * scale
				}
				top := math.Inf(-1)
				for j := from; j < to; j++ {
					top = max(top, score(j))
				}
				out := o[((b*s.sq+i)*s.heads+h)*s.hd:][:s.hd]
				var sum float64
				for j := from; j < to; j++ {
					p := math.Exp(score(j) - top)
					sum += p
					for d, x := range v["v"][((b*s.sk+j)*s.kv+g)*s.hd:][:s.hd] {
						out[d] += p * x
					}
				}
				lse[(b*s.heads+h)*s.sq+i] = math.Inf(-1)
				if sum > 0 {
					lse[(b*s.heads+h)*s.sq+i] = top + math.Log(sum)
					for d := range out {
						out[d] /= sum
					}
				}
			}
		}
	}
	return o, lse
}

func (s shape) scaling() float64 {
	if s.scale == 0 {
		return 1 / math.Sqrt(float64(s.hd))
	}
	return s.scale
}

// seen returns the keys [from, to) that query i of sample b sees.
func (s shape) seen(b, i int) (from, to int) {
	to = s.sk
	if s.ranges != nil {
		from, to = int(s.ranges[2*b]), int(s.ranges[2*b+1])
	}
	if s.causal {
		to = min(to, i+1)
	}
	return from, to
}

func (s shape) qkv() []Arg {
	gap := s.heads * s.hd // as in a fused projection
	in := []Arg{x("q", s.batch*s.sq, s.heads*s.hd).gap(gap), x("k", s.batch*s.sk, s.kv*s.hd).gap(gap), x("v", s.batch*s.sk, s.kv*s.hd).gap(gap)}
	if s.ranges != nil {
		in = append(in, Arg{Name: "keys", Shape: []int{s.batch, 2}, DType: tensor.I32, Fill: List(s.ranges...)})
	}
	return in
}

func (s shape) forward() Case {
	return Case{
		Name: "attention/" + s.name(),
		In:   s.qkv(),
		Out:  []Arg{s.spread(out("o", s.batch*s.sq, s.heads*s.hd), 3), f32("lse", nil, s.batch, s.heads, s.sq)},
		Op: func(t Tensors) gpu.Kernel {
			return ops.Attention{O: t["o"], Q: t["q"], K: t["k"], V: t["v"], LSE: t["lse"], Batch: s.batch, Heads: s.heads, KVHeads: s.kv,
				Scale: float32(s.scale), Causal: s.causal, Keys: t["keys"]}
		},
		Want: func(v Values) Values {
			o, lse := s.softmax(v)
			return Values{"o": o, "lse": lse}
		},
		TolBF16: 1.0 / 128, // of weights that are rounded too
	}
}

func (s shape) backward() Case {
	width := s.heads * s.hd
	return Case{
		Name: "attention_backward/" + s.name(),
		In: append(s.qkv(), x("do", s.batch*s.sq, width),
			Arg{Name: "o", Shape: []int{s.batch * s.sq, width}, From: func(v Values) []float64 { o, _ := s.softmax(v); return o }},
			saved("lse", func(v Values) []float64 { _, l := s.softmax(v); return l }, s.batch, s.heads, s.sq)),
		Out: []Arg{out("dq", s.batch*s.sq, width).gap(2 * width), s.spread(out("dk", s.batch*s.sk, s.kv*s.hd), 1), out("dv", s.batch*s.sk, s.kv*s.hd),
			{Name: "delta", Shape: []int{s.batch, s.heads, s.sq}, DType: tensor.F32, Scratch: true}},
		Op: func(t Tensors) gpu.Kernel {
			return ops.AttentionBackward{DQ: t["dq"], DK: t["dk"], DV: t["dv"], DO: t["do"], O: t["o"], Q: t["q"], K: t["k"], V: t["v"], LSE: t["lse"],
				Delta: t["delta"], Batch: s.batch, Heads: s.heads, KVHeads: s.kv, Scale: float32(s.scale), Causal: s.causal, Keys: t["keys"]}
		},
		Grad: &Grad{Forward: func(v Values) []float64 { o, _ := s.softmax(v); return o }, DY: "do", Of: map[string]string{"dq": "q", "dk": "k", "dv": "v"}},
		Tol:  gradTol,
		// Weights, their gradients and the output that is an input are rounded too.
		TolBF16: 1.0 / 64,
	}
}

func attentionCases() []Case {
	var cases []Case
	for _, s := range []shape{
		{batch: 2, heads: 3, kv: 3, sq: 5, sk: 5, hd: 4},
		{batch: 1, heads: 2, kv: 2, sq: 3, sk: 7, hd: 8, scale: 0.7},
		{batch: 2, heads: 4, kv: 2, sq: 6, sk: 6, hd: 4, causal: true},
		{batch: 2, heads: 2, kv: 1, sq: 6, sk: 6, hd: 4, causal: true, ranges: []float64{2, 6, 0, 4}},
		{batch: 2, heads: 1, kv: 1, sq: 4, sk: 5, hd: 4, ranges: []float64{0, 0, 1, 4}},
	} {
		cases = append(cases, s.forward(), s.backward())
	}
	for _, s := range []shape{ // one token; more than one tile each way
		{batch: 1, heads: 1, kv: 1, sq: 1, sk: 1, hd: 8},
		{batch: 1, heads: 2, kv: 2, sq: 150, sk: 150, hd: 16},
		{batch: 1, heads: 1, kv: 1, sq: 70, sk: 300, hd: 128},
		{batch: 1, heads: 2, kv: 1, sq: 200, sk: 200, hd: 8, causal: true, ranges: []float64{130, 190}},
		{batch: 1, heads: 1, kv: 1, sq: 64, sk: 64, hd: 512},
	} {
		cases = append(cases, s.forward())
	}
	// Two chunks of keys in the backward; against the same gradient in closed form.
	cases = append(cases, shape{batch: 1, heads: 2, kv: 1, sq: 70, sk: 600, hd: 8}.closed(), shape{batch: 1, heads: 1, kv: 1, sq: 600, sk: 600, hd: 4, causal: true}.closed())
	for _, s := range []shape{ // heads as wide as the tensor cores take them; lengths that do not divide evenly
		{batch: 2, heads: 2, kv: 2, sq: 33, sk: 33, hd: 16},
		{batch: 1, heads: 2, kv: 1, sq: 200, sk: 200, hd: 64, causal: true, ranges: []float64{37, 190}},
		{batch: 1, heads: 1, kv: 1, sq: 129, sk: 65, hd: 40, scale: 0.3},
		{batch: 2, heads: 2, kv: 1, sq: 70, sk: 150, hd: 128, ranges: []float64{3, 150, 0, 64}},
		{batch: 1, heads: 1, kv: 1, sq: 200, sk: 333, hd: 128},
		{batch: 1, heads: 2, kv: 1, sq: 150, sk: 150, hd: 96, causal: true},
	} {
		s.aligned = true
		cases = append(cases, s.forward(), s.closed())
	}
	for _, s := range []shape{{batch: 1, heads: 4, kv: 4, sq: 512, sk: 512, hd: 128}} {
		fwd, bwd := s.forward(), s.backward()
		for i, a := range bwd.In { // zeros will do for speed
			if a.From != nil {
				bwd.In[i].From, bwd.In[i].Fill = nil, List(0)
			}
		}
		fwd.Name, fwd.Want = "speed/"+fwd.Name, nil
		bwd.Name, bwd.Grad = "speed/"+bwd.Name, nil
		cases = append(cases, fwd, bwd)
	}
	return cases
}

// closed is backward with a reference in closed form, for sizes where finite
// differences would take too long.
func (s shape) closed() Case {
	c := s.backward()
	c.Name = "attention_backward/closed form " + s.name()
	c.Grad = nil
	c.Want = func(v Values) Values {
		o, lse := s.softmax(v)
		dq, dk, dv := make([]float64, len(v["q"])), make([]float64, len(v["k"])), make([]float64, len(v["v"]))
		scale := s.scaling()
		for b := range s.batch {
			for h := range s.heads {
				g := h / (s.heads / s.kv)
				for i := range s.sq {
					qi := ((b*s.sq+i)*s.heads + h) * s.hd
					var delta float64
					for d := range s.hd {
						delta += v["do"][qi+d] * o[qi+d]
					}
					from, to := s.seen(b, i)
					for j := from; j < to; j++ {
						kj := ((b*s.sk+j)*s.kv + g) * s.hd
						var score, dp float64
						for d := range s.hd {
							score += scale * v["q"][qi+d] * v["k"][kj+d]
							dp += v["do"][qi+d] * v["v"][kj+d]
						}
						p := math.Exp(score - lse[(b*s.heads+h)*s.sq+i])
						ds := p * (dp - delta) * scale
						for d := range s.hd {
							dv[kj+d] += p * v["do"][qi+d]
							dq[qi+d] += ds * v["k"][kj+d]
							dk[kj+d] += ds * v["q"][qi+d]
						}
					}
				}
			}
		}
		return Values{"dq": dq, "dk": dk, "dv": dv}
	}
	return c
}
