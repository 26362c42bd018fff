package flux2

import (
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// modulation is how time and guidance act on one sublayer, [B, D] each:
//
//	x + gate · f((1 + scale)·LN(x) + shift)
type modulation struct{ shift, scale, gate tensor.Tensor }

// modNorm is y = (1 + scale)·LN(x) + shift, LN without parameters.
type modNorm struct {
	x, mean, rstd tensor.Tensor // kept: [B·S, D], [B·S], [B·S]
	mod           modulation
}

// forward returns y [B·S, D].
func (n *modNorm) forward(p *pass, x tensor.Tensor, mod modulation) tensor.Tensor {
	n.x, n.mod = x, mod
	n.mean, n.rstd = p.c.NewF32(x.Rows()), p.c.NewF32(x.Rows())
	y := p.c.New(x.Rows(), x.Cols())
	p.c.Run(ops.LayerNorm{Y: y, X: x, Shift: mod.shift, Scale: mod.scale, Mean: n.mean, RStd: n.rstd, Eps: p.eps})
	return y
}

// backward adds the gradient of x to dx, or assigns it.
func (n *modNorm) backward(p *pass, dx, dy tensor.Tensor, add bool) {
	p.c.Run(ops.LayerNormBackward{DX: dx, DY: dy, X: n.x, Scale: n.mod.scale, Mean: n.mean, RStd: n.rstd, Accumulate: add})
}

// headNorm is what queries and keys go through before attention: RMS norm over
// each head, then rotation by the token's position.
type headNorm struct {
	name    string        // "single_blocks.0.norm.query_norm"
	weight  tensor.Tensor // [hd]
	rstd    tensor.Tensor // kept: [B·S, H]
	x       tensor.Tensor // kept: [B·S, D]
	rotated rotation
}

func (n *headNorm) bind(p memory.Params, headDim int) error {
	w, err := weight(p, n.name+".scale", headDim)
	n.weight = w.Data
	return err
}

// reserve takes the memory that is kept; it comes before forward.
func (n *headNorm) reserve(p *pass, rows int) { n.rstd = p.c.NewF32(rows, p.heads) }

// forward assigns y [B·S, D].
func (n *headNorm) forward(p *pass, y, x tensor.Tensor, r rotation) {
	n.x, n.rotated = x, r
	p.c.Run(ops.RMSNormRoPE{Y: y, X: x, W: n.weight, RStd: n.rstd, Cos: r.cos, Sin: r.sin, Eps: p.eps})
	p.probe(n.name, y)
}

// backward turns d, the gradient of y, into that of x.
func (n *headNorm) backward(p *pass, d tensor.Tensor) {
	p.c.Run(ops.RMSNormRoPEBackward{DX: d, DY: d, X: n.x, W: n.weight, RStd: n.rstd, Cos: n.rotated.cos, Sin: n.rotated.sin})
}

// attention is full attention of all tokens of a sample to each other.
type attention struct {
	q, k, v, o tensor.Tensor // [B·S, D]
	lse        tensor.Tensor // [B, H, S]
}

// forward assigns o from q, k and v. Where its result is kept, o and lse are
// there, and nothing is computed once it has been.
func (a *attention) forward(p *pass, at kept) {
	if at.o.Valid() {
		a.o, a.lse = at.o, at.lse
	} else {
		a.lse = p.c.NewF32(p.shape.B, p.heads, p.shape.Sequence())
	}
	if at.done {
		return
	}
	p.c.Run(ops.Attention{O: a.o, Q: a.q, K: a.k, V: a.v, LSE: a.lse, Batch: p.shape.B, Heads: p.heads})
}

// backward assigns the gradients of q, k and v from do.
func (a *attention) backward(p *pass, dq, dk, dv, do tensor.Tensor) {
	defer p.c.Scope()()
	p.c.Run(ops.AttentionBackward{DQ: dq, DK: dk, DV: dv, DO: do, O: a.o, Q: a.q, K: a.k, V: a.v, LSE: a.lse,
		Delta: p.c.NewF32(a.lse.Shape...), Batch: p.shape.B, Heads: p.heads})
}
