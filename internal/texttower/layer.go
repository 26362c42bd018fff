package texttower

import (
	"fmt"

	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// pass is what one prompt needs to go through one layer. L are its tokens, H is
// Hidden, hd is HeadDim.
type pass struct {
	*ops.Ctx
	cfg      Config
	qkNorm   bool
	cos, sin tensor.Tensor // [L, hd]
	keys     tensor.Tensor // i32 [1, 2]: the range of real tokens
	layer    int
	params   memory.Params                      // of the layer
	tap      func(name string, t tensor.Tensor) // sees activations in tests; nil in use
}

// weight returns a tensor of the present layer.
func (p *pass) weight(name string) tensor.Weight {
	full := layerName(p.layer, name)
	w, ok := p.params[full]
	if !ok {
		panic(fmt.Sprintf("texttower: %s is not among the layer's weights", full))
	}
	return w
}

// see gives a tensor to the tap.
func (p *pass) see(name string, t tensor.Tensor) tensor.Tensor {
	if p.tap != nil {
		p.tap(fmt.Sprintf("layers.%d.%s", p.layer, name), t)
	}
	return t
}

// forward adds the present layer to the residual stream x [L, H]:
//
//	x += o_proj(attention(rms(x))),  x += down(silu(gate(h)) · up(h)) with h = rms(x)
func (p *pass) forward(x tensor.Tensor) {
	func() {
		defer p.Scope()()
		h := p.norm("input_layernorm", x)                                   // [L, H]
		p.Run(ops.Add{Y: x, A: x, B: p.see("self_attn.0", p.attention(h))}) // [L, H]
	}()
	defer p.Scope()()
	h := p.norm("post_attention_layernorm", x)                    // [L, H]
	p.Run(ops.Add{Y: x, A: x, B: p.see("mlp", p.feedForward(h))}) // [L, H]
}

// attention is causal attention over the real tokens with grouped queries:
// query head i reads key and value head i·KVHeads/Heads. A row that sees no
// token, which is a pad row at the left, gets zeros.
func (p *pass) attention(h tensor.Tensor) tensor.Tensor {
	c := p.cfg
	q := p.linear("self_attn.q_proj", h) // [L, Heads·hd]
	k := p.linear("self_attn.k_proj", h) // [L, KVHeads·hd]
	v := p.linear("self_attn.v_proj", h) // [L, KVHeads·hd]
	if p.qkNorm {
		p.Run(
			ops.RMSNorm{Y: q, X: q, W: p.weight("self_attn.q_norm").Data, Eps: float32(c.Eps)},
			ops.RMSNorm{Y: k, X: k, W: p.weight("self_attn.k_norm").Data, Eps: float32(c.Eps)},
		)
		p.see("self_attn.q_norm", q)
		p.see("self_attn.k_norm", k)
	}
	p.Run(
		ops.RoPE{Y: q, X: q, Cos: p.cos, Sin: p.sin, Half: true},
		ops.RoPE{Y: k, X: k, Cos: p.cos, Sin: p.sin, Half: true},
	)
	o := p.New(q.Shape...) // [L, Heads·hd]
	p.Run(ops.Attention{O: o, Q: q, K: k, V: v, Batch: 1, Heads: c.Heads, KVHeads: c.KVHeads, Causal: true, Keys: p.keys})
	return p.linear("self_attn.o_proj", o)
}

// feedForward is SwiGLU.
func (p *pass) feedForward(h tensor.Tensor) tensor.Tensor {
	gate := p.linear("mlp.gate_proj", h) // [L, Intermediate]
	up := p.linear("mlp.up_proj", h)     // [L, Intermediate]
	p.Run(ops.SwiGLU{Y: gate, Gate: gate, Up: up})
	return p.linear("mlp.down_proj", gate) // [L, H]
}

// norm returns the RMS norm of x.
func (p *pass) norm(name string, x tensor.Tensor) tensor.Tensor {
	y := p.New(x.Shape...)
	p.Run(ops.RMSNorm{Y: y, X: x, W: p.weight(name).Data, Eps: float32(p.cfg.Eps)})
	return p.see(name, y)
}

// expandAtOnce is how many weights are expanded at a time: a part of a large
// matrix, so that the workspace stays small beside the tower. It decides how a
// product is cut and so belongs to the producer's version.
const expandAtOnce = 4 << 20

// linear returns x·Wᵀ. A weight that is not stored as the activations are is
// expanded some rows at a time.
func (p *pass) linear(name string, x tensor.Tensor) tensor.Tensor {
	w := p.weight(name)
	out, in := w.Data.Rows(), w.Data.Cols()
	y := p.New(x.Rows(), out)
	if w.Data.DType == p.Act && !w.Scale.Valid() {
		p.Run(ops.Gemm{C: y, A: x, B: w.Data, TransB: true, Alpha: 1})
		return p.see(name, y)
	}
	step := min(out, max(1, expandAtOnce/in))
	mark := p.Arena.Mark()
	scratch := p.New(step, in)
	for lo := 0; lo < out; lo += step {
		hi := min(lo+step, out)
		part, b := rowRange(w, lo, hi), scratch.RowRange(0, hi-lo)
		p.Run(
			ops.Expand{Y: b, W: part},
			ops.Gemm{C: y.ColRange(lo, hi), A: x, B: b, TransB: true, Alpha: 1},
		)
	}
	p.Arena.Release(mark)
	return p.see(name, y)
}

// rowRange returns output rows [lo, hi) of a weight.
func rowRange(w tensor.Weight, lo, hi int) tensor.Weight {
	part := tensor.Weight{Data: w.Data.RowRange(lo, hi)}
	if w.Scale.Valid() {
		part.Scale = w.Scale.View(w.Scale.Len(), 1).RowRange(lo, hi).View(hi - lo)
	}
	return part
}
