package flux2

import (
	"errors"

	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/nn"
)

// singleBlock has attention and feed-forward side by side, over one stream:
//
//	q, k, v, gate, up = linear1(mod(x))
//	y = x + gate_mod · linear2([attention(q, k, v) ; silu(gate)·up])
type singleBlock struct {
	headDim          int
	linear1, linear2 linear // [3D+2I, D], [D, D+I]
	norm             modNorm
	query, key       headNorm
	attn             attention

	// Kept from forward to backward.
	xm   tensor.Tensor // mod(x) [B·S, D]
	p    tensor.Tensor // q, k, v, gate, up [B·S, 3D+2I]
	both tensor.Tensor // attention's output and the feed-forward's [B·S, D+I]
}

func newSingleBlock(c Config, ad nn.Adapter, i int) *singleBlock {
	d, inner, name := c.Width(), c.Inner(), singlePrefix(i)
	return &singleBlock{
		headDim: c.HeadDim,
		query:   headNorm{name: name + ".norm.query_norm"},
		key:     headNorm{name: name + ".norm.key_norm"},
		linear1: newLinear(ad, name+".linear1", 3*d+2*inner, d),
		linear2: newLinear(ad, name+".linear2", d, d+inner),
	}
}

func (b *singleBlock) bind(p memory.Params) error {
	return errors.Join(b.query.bind(p, b.headDim), b.key.bind(p, b.headDim), b.linear1.bind(p), b.linear2.bind(p))
}

func (b *singleBlock) forward(p *pass, out, in residual, at kept) {
	x := in.all // [B·S, D]
	rows, d := x.Rows(), p.width
	b.xm = b.norm.forward(p, x, p.mod.single)
	b.p = p.c.New(rows, 3*d+2*p.inner)
	b.linear1.Forward(p.c, b.p, b.xm)
	b.both = p.c.New(rows, d+p.inner)

	a := &b.attn
	q, k, v := heads(p, b.p)
	o := b.both.ColRange(0, d)
	a.q, a.k, a.v, a.o = p.c.New(rows, d), p.c.New(rows, d), v, o
	b.query.reserve(p, rows)
	b.key.reserve(p, rows)
	b.query.forward(p, a.q, q, p.rope)
	b.key.forward(p, a.k, k, p.rope)
	a.forward(p, at)
	if at.o.Valid() {
		p.c.Run(ops.Copy{Y: o, X: at.o})
	}

	gate, up := b.gateUp(p, b.p)
	p.c.Run(ops.SwiGLU{Y: b.both.ColRange(d, d+p.inner), Gate: gate, Up: up})
	b.linear2.Forward(p.c, out.all, b.both)
	if out.all.Valid() {
		p.c.Run(ops.GateResidual{Y: out.all, X: x, H: out.all, Gate: p.mod.single.gate})
	}
}

// gateUp returns the feed-forward's columns of the projection, or of its gradient.
func (b *singleBlock) gateUp(p *pass, proj tensor.Tensor) (gate, up tensor.Tensor) {
	at := 3 * p.width
	return proj.ColRange(at, at+p.inner), proj.ColRange(at+p.inner, at+2*p.inner)
}

func (b *singleBlock) backward(p *pass, d residual, inputs bool) {
	defer p.c.Scope()()
	width := p.width
	dp := p.c.New(b.p.Shape...)
	dboth := p.c.New(b.both.Shape...)
	dx := p.c.New(d.all.Shape...) // of linear2's output, then of mod(x)
	p.c.Run(ops.GateResidualBackward{DH: dx, DY: d.all, Gate: b.norm.mod.gate})
	b.linear2.Backward(p.c, dboth, dx, b.both, false)

	gate, up := b.gateUp(p, b.p)
	dgate, dup := b.gateUp(p, dp)
	p.c.Run(ops.SwiGLUBackward{DGate: dgate, DUp: dup, DY: dboth.ColRange(width, width+p.inner), Gate: gate, Up: up})
	dq, dk, dv := heads(p, dp)
	b.attn.backward(p, dq, dk, dv, dboth.ColRange(0, width))
	b.query.backward(p, dq)
	b.key.backward(p, dk)

	if !inputs {
		b.linear1.Backward(p.c, tensor.Tensor{}, dp, b.xm, false)
		return
	}
	b.linear1.Backward(p.c, dx, dp, b.xm, false)
	b.norm.backward(p, d.all, dx, true)
}
