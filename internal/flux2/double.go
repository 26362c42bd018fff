package flux2

import (
	"errors"

	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/nn"
)

// doubleBlock has weights apart for text and image, and one attention over both:
//
//	q, k, v = qkv(mod₁(x))                of each stream
//	o       = attention([txt ; img])
//	x₁      = x + gate₁ · proj(o)          of each stream again
//	x₂      = x₁ + gate₂ · mlp(mod₂(x₁))
type doubleBlock struct {
	txt, img stream
	attn     attention
}

// stream is one side of a double block.
type stream struct {
	headDim       int
	qkv, proj     linear // [3D, D], [D, D]
	mlpIn, mlpOut linear // [2I, D], [D, I]
	norm1, norm2  modNorm
	query, key    headNorm

	// Kept from forward to backward, for T tokens of the stream.
	x, xm1, p   tensor.Tensor // the input, mod₁(x) [B·T, D]; q, k, v [B·T, 3D]
	o, x1, xm2  tensor.Tensor // attention's output, x₁, mod₂(x₁) [B·T, D]
	hidden, act tensor.Tensor // gate and up [B·T, 2I]; silu(gate)·up [B·T, I]
}

func newDoubleBlock(c Config, ad nn.Adapter, i int) *doubleBlock {
	return &doubleBlock{txt: newStream(c, ad, doublePrefix(i, "txt")), img: newStream(c, ad, doublePrefix(i, "img"))}
}

func newStream(c Config, ad nn.Adapter, name string) stream {
	d, inner := c.Width(), c.Inner()
	return stream{
		headDim: c.HeadDim,
		query:   headNorm{name: name + "_attn.norm.query_norm"},
		key:     headNorm{name: name + "_attn.norm.key_norm"},
		qkv:     newLinear(ad, name+"_attn.qkv", 3*d, d),
		proj:    newLinear(ad, name+"_attn.proj", d, d),
		mlpIn:   newLinear(ad, name+"_mlp.0", 2*inner, d),
		mlpOut:  newLinear(ad, name+"_mlp.2", d, inner),
	}
}

func (b *doubleBlock) bind(p memory.Params) error {
	return errors.Join(b.txt.bind(p), b.img.bind(p))
}

func (s *stream) bind(p memory.Params) error {
	return errors.Join(s.query.bind(p, s.headDim), s.key.bind(p, s.headDim), s.qkv.bind(p), s.proj.bind(p), s.mlpIn.bind(p), s.mlpOut.bind(p))
}

func (b *doubleBlock) forward(p *pass, out, in residual, at kept) {
	rows, d := p.shape.B*p.shape.Sequence(), p.width
	b.txt.project(p, in.txt, p.mod.txt[0]) // [B·L, 3D]
	b.img.project(p, in.img, p.mod.img[0]) // [B·N, 3D]

	a := &b.attn
	a.q, a.k, a.v = p.c.New(rows, d), p.c.New(rows, d), p.c.New(rows, d)
	if !at.o.Valid() {
		a.o = p.c.New(rows, d)
	}
	b.joinHeads(p)
	a.forward(p, at)

	b.txt.o, b.img.o = p.c.New(in.txt.Rows(), d), p.c.New(in.img.Rows(), d)
	p.c.Run(ops.Split{A: b.txt.o, B: b.img.o, X: a.o, Batch: p.shape.B})
	b.txt.finish(p, out.txt, p.mod.txt)
	b.img.finish(p, out.img, p.mod.img)
}

// project computes q, k and v of a stream.
func (s *stream) project(p *pass, x tensor.Tensor, mod modulation) {
	s.x = x
	s.xm1 = s.norm1.forward(p, x, mod)
	s.p = p.c.New(x.Rows(), 3*p.width)
	s.qkv.Forward(p.c, s.p, s.xm1)
	s.query.reserve(p, x.Rows())
	s.key.reserve(p, x.Rows())
}

// heads returns the q, k and v columns of a stream's projection, or of its gradient.
func heads(p *pass, proj tensor.Tensor) (q, k, v tensor.Tensor) {
	d := p.width
	return proj.ColRange(0, d), proj.ColRange(d, 2*d), proj.ColRange(2*d, 3*d)
}

// joinHeads makes the joint q, k and v [B·S, D], text first, of the streams'.
func (b *doubleBlock) joinHeads(p *pass) {
	defer p.c.Scope()()
	txt, img := p.rope.rows(0, p.shape.L), p.rope.rows(p.shape.L, p.shape.Sequence())
	qt, kt, vt := heads(p, b.txt.p)
	qi, ki, vi := heads(p, b.img.p)
	t, i := p.c.New(qt.Shape...), p.c.New(qi.Shape...)

	b.txt.query.forward(p, t, qt, txt)
	b.img.query.forward(p, i, qi, img)
	p.c.Run(ops.Concat{Y: b.attn.q, A: t, B: i, Batch: p.shape.B})
	b.txt.key.forward(p, t, kt, txt)
	b.img.key.forward(p, i, ki, img)
	p.c.Run(ops.Concat{Y: b.attn.k, A: t, B: i, Batch: p.shape.B})
	p.c.Run(ops.Concat{Y: b.attn.v, A: vt, B: vi, Batch: p.shape.B})
}

// finish adds the attention's output and the feed-forward to a stream.
func (s *stream) finish(p *pass, out tensor.Tensor, mod [2]modulation) {
	s.x1 = p.c.New(s.x.Shape...)
	s.proj.Forward(p.c, s.x1, s.o)
	p.c.Run(ops.GateResidual{Y: s.x1, X: s.x, H: s.x1, Gate: mod[0].gate})

	s.xm2 = s.norm2.forward(p, s.x1, mod[1])
	s.hidden = p.c.New(s.x.Rows(), 2*p.inner)
	s.mlpIn.Forward(p.c, s.hidden, s.xm2)
	s.act = p.c.New(s.x.Rows(), p.inner)
	p.c.Run(ops.SwiGLU{Y: s.act, Gate: s.hidden.ColRange(0, p.inner), Up: s.hidden.ColRange(p.inner, 2*p.inner)})
	s.mlpOut.Forward(p.c, out, s.act)
	if out.Valid() {
		p.c.Run(ops.GateResidual{Y: out, X: s.x1, H: out, Gate: mod[1].gate})
	}
}

func (b *doubleBlock) backward(p *pass, d residual, inputs bool) {
	defer p.c.Scope()()
	rows, width := p.shape.B*p.shape.Sequence(), p.width
	do := p.c.New(rows, width)
	dt, di := p.c.New(b.txt.p.Shape...), p.c.New(b.img.p.Shape...) // gradients of q, k, v
	func() {
		defer p.c.Scope()()
		dot, doi := p.c.New(b.txt.o.Shape...), p.c.New(b.img.o.Shape...)
		b.txt.finishBackward(p, dot, d.txt)
		b.img.finishBackward(p, doi, d.img)
		p.c.Run(ops.Concat{Y: do, A: dot, B: doi, Batch: p.shape.B})
	}()
	b.attentionBackward(p, dt, di, do)
	b.txt.projectBackward(p, d.txt, dt, inputs)
	b.img.projectBackward(p, d.img, di, inputs)
}

// attentionBackward assigns the gradients of the streams' q, k and v.
func (b *doubleBlock) attentionBackward(p *pass, dt, di, do tensor.Tensor) {
	defer p.c.Scope()()
	dq, dk, dv := p.c.New(do.Shape...), p.c.New(do.Shape...), p.c.New(do.Shape...)
	b.attn.backward(p, dq, dk, dv, do)

	qt, kt, vt := heads(p, dt)
	qi, ki, vi := heads(p, di)
	p.c.Run(
		ops.Split{A: qt, B: qi, X: dq, Batch: p.shape.B},
		ops.Split{A: kt, B: ki, X: dk, Batch: p.shape.B},
		ops.Split{A: vt, B: vi, X: dv, Batch: p.shape.B},
	)
	b.txt.query.backward(p, qt)
	b.txt.key.backward(p, kt)
	b.img.query.backward(p, qi)
	b.img.key.backward(p, ki)
}

// finishBackward turns d, the gradient of the stream's output, into that of the
// residual before finish, and assigns that of the attention's output to do.
func (s *stream) finishBackward(p *pass, do, d tensor.Tensor) {
	defer p.c.Scope()()
	dact, dhidden := p.c.New(s.act.Shape...), p.c.New(s.hidden.Shape...)
	dy := p.c.New(d.Shape...)
	p.c.Run(ops.GateResidualBackward{DH: dy, DY: d, Gate: s.norm2.mod.gate})
	s.mlpOut.Backward(p.c, dact, dy, s.act, false)
	p.c.Run(ops.SwiGLUBackward{DY: dact,
		Gate: s.hidden.ColRange(0, p.inner), Up: s.hidden.ColRange(p.inner, 2*p.inner),
		DGate: dhidden.ColRange(0, p.inner), DUp: dhidden.ColRange(p.inner, 2*p.inner)})
	s.mlpIn.Backward(p.c, dy, dhidden, s.xm2, false)
	s.norm2.backward(p, d, dy, true)

	p.c.Run(ops.GateResidualBackward{DH: dy, DY: d, Gate: s.norm1.mod.gate})
	s.proj.Backward(p.c, do, dy, s.o, false)
}

// projectBackward adds to d what the stream's input gets through q, k and v.
func (s *stream) projectBackward(p *pass, d, dqkv tensor.Tensor, inputs bool) {
	defer p.c.Scope()()
	if !inputs {
		s.qkv.Backward(p.c, tensor.Tensor{}, dqkv, s.xm1, false)
		return
	}
	dx := p.c.New(d.Shape...)
	s.qkv.Backward(p.c, dx, dqkv, s.xm1, false)
	s.norm1.backward(p, d, dx, true)
}
