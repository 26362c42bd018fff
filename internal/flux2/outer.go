package flux2

import (
	"errors"

	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/nn"
)

// outer is the model outside its blocks: the embedders at its entry, the shared
// modulations, and the head.
type outer struct {
	cfg                       Config
	imgIn, txtIn              linear // [D, C], [D, J]
	timeIn, guidanceIn        embedder
	modImg, modTxt, modSingle linear // [6D, D], [6D, D], [3D, D]
	modFinal                  linear // [2D, D]
	final                     linear // [C', D]
	finalNorm                 modNorm
}

// embedder is the two-layer network on a sinusoid of time or guidance.
type embedder struct{ in, out linear }

// modulations are those of a pass, one for all blocks of a kind.
type modulations struct {
	txt, img [2]modulation // of a double block's streams: attention, feed-forward
	single   modulation
	final    modulation // without gate
}

func newOuter(c Config) outer {
	d, frozen := c.Width(), nn.Frozen{}
	linear := func(name string, out, in int) linear { return newLinear(frozen, name, out, in) }
	embedder := func(name string) embedder {
		return embedder{in: linear(name+".in_layer", d, c.TimeChannels), out: linear(name+".out_layer", d, d)}
	}
	return outer{
		cfg:        c,
		imgIn:      linear("img_in", d, c.InChannels),
		txtIn:      linear("txt_in", d, c.TextDim),
		timeIn:     embedder("time_in"),
		guidanceIn: embedder("guidance_in"),
		modImg:     linear("double_stream_modulation_img.lin", 6*d, d),
		modTxt:     linear("double_stream_modulation_txt.lin", 6*d, d),
		modSingle:  linear("single_stream_modulation.lin", 3*d, d),
		modFinal:   linear("final_layer.adaLN_modulation.1", 2*d, d),
		final:      linear("final_layer.linear", c.OutChannels, d),
	}
}

func (o *outer) bind(p memory.Params) error {
	ls := []*linear{&o.imgIn, &o.txtIn, &o.timeIn.in, &o.timeIn.out, &o.modImg, &o.modTxt, &o.modSingle, &o.modFinal, &o.final}
	if o.cfg.Guidance {
		ls = append(ls, &o.guidanceIn.in, &o.guidanceIn.out)
	}
	var errs []error
	for _, l := range ls {
		errs = append(errs, l.bind(p))
	}
	return errors.Join(errs...)
}

// condition computes the modulations from time and guidance:
//
//	m = W_mod · silu(time(t) + guidance(g)),  in equal parts shift, scale, gate
func (o *outer) condition(p *pass, in Input) {
	c, b, d := p.c, p.shape.B, p.width
	img, txt, single, final := c.New(b, 6*d), c.New(b, 6*d), c.New(b, 3*d), c.New(b, 2*d)
	defer c.Scope()()
	vec := c.New(b, d)
	o.timeIn.forward(p, "time_in", vec, in.Timestep)
	if o.cfg.Guidance && in.Guidance.Valid() {
		g := c.New(b, d)
		o.guidanceIn.forward(p, "guidance_in", g, in.Guidance)
		c.Run(ops.Add{Y: vec, A: vec, B: g})
	}
	p.probe("vec", vec)
	c.Run(ops.SiLU{Y: vec, X: vec})
	p.probe("vec.silu", vec)
	for _, m := range []struct {
		l linear
		y tensor.Tensor
	}{{o.modImg, img}, {o.modTxt, txt}, {o.modSingle, single}, {o.modFinal, final}} {
		m.l.Forward(c, m.y, vec)
		p.probe(m.l.name, m.y)
	}
	p.mod.img = [2]modulation{chunk(img, 0, d), chunk(img, 3, d)}
	p.mod.txt = [2]modulation{chunk(txt, 0, d), chunk(txt, 3, d)}
	p.mod.single = chunk(single, 0, d)
	p.mod.final = modulation{shift: final.ColRange(0, d), scale: final.ColRange(d, 2*d)}
}

// chunk returns the modulation in columns [at·D, (at+3)·D).
func chunk(t tensor.Tensor, at, d int) modulation {
	part := func(i int) tensor.Tensor { return t.ColRange((at+i)*d, (at+i+1)*d) }
	return modulation{shift: part(0), scale: part(1), gate: part(2)}
}

// timeFactor is what time and guidance are multiplied by before the sinusoid.
const timeFactor = 1000

// forward assigns y [B, D] = W₂·silu(W₁·sinusoid(1000·t)). t [B] float32 is
// rounded to the activations' type before and after the product, as the
// reference does; the sinusoid is computed in float32.
func (e *embedder) forward(p *pass, name string, y, t tensor.Tensor) {
	c := p.c
	defer c.Scope()()
	scaled := c.NewF32(t.Shape...)
	rounded(c, scaled, t)
	c.Run(ops.Scale{Y: scaled, X: scaled, Alpha: timeFactor})
	rounded(c, scaled, scaled)
	wave := c.NewF32(t.Len(), e.in.in)
	c.Run(ops.Sinusoid{Y: wave, T: scaled})
	hidden := c.New(t.Len(), e.in.out)
	e.in.Forward(c, hidden, activation(c, wave))
	p.probe(e.in.name, hidden)
	c.Run(ops.SiLU{Y: hidden, X: hidden})
	p.probe(name+".silu", hidden)
	e.out.Forward(c, y, hidden)
	p.probe(e.out.name, y)
}

// rounded assigns y = x, float32, rounded to the activations' type.
func rounded(c *ops.Ctx, y, x tensor.Tensor) {
	defer c.Scope()()
	narrow := c.New(x.Shape...)
	c.Run(ops.Cast{Y: narrow, X: x}, ops.Cast{Y: y, X: narrow})
}

// activation returns t in the activations' type: itself, or a cast in the arena.
func activation(c *ops.Ctx, t tensor.Tensor) tensor.Tensor {
	if t.DType == c.Act {
		return t
	}
	y := c.New(t.Shape...)
	c.Run(ops.Cast{Y: y, X: t})
	return y
}

// embed assigns the streams that the first block is given.
func (o *outer) embed(p *pass, x residual, in Input) {
	defer p.c.Scope()()
	o.txtIn.Forward(p.c, x.txt, activation(p.c, in.Text))
	tokens := activation(p.c, in.Tokens)
	if in.Refs.Valid() {
		joined := p.c.New(x.img.Rows(), o.cfg.InChannels)
		p.c.Run(ops.Concat{Y: joined, A: tokens, B: activation(p.c, in.Refs), Batch: p.shape.B})
		tokens = joined
	}
	o.imgIn.Forward(p.c, x.img, tokens)
	p.probe("txt_in", x.txt)
	p.probe("img_in", x.img)
}

// embedBackward assigns the gradients of the inputs that are wanted.
func (o *outer) embedBackward(p *pass, want InputGrads, d residual) {
	defer p.c.Scope()()
	if want.Text.Valid() {
		o.txtIn.Backward(p.c, want.Text, d.txt, tensor.Tensor{}, false)
	}
	if !want.Tokens.Valid() {
		return
	}
	if image, refs := p.shape.Tokens(); refs > 0 {
		joined := p.c.New(d.img.Rows(), o.cfg.InChannels)
		o.imgIn.Backward(p.c, joined, d.img, tensor.Tensor{}, false)
		p.takeTokens(want.Tokens, joined, 0, image)
		return
	}
	o.imgIn.Backward(p.c, want.Tokens, d.img, tensor.Tensor{}, false)
}

// head assigns the prediction pred [B, H·W, C'] from the last block's output:
// the target image's tokens alone.
func (o *outer) head(p *pass, pred tensor.Tensor, x residual) {
	image, _ := p.shape.Tokens()
	target := p.c.New(p.shape.B*image, p.width)
	p.takeTokens(target, x.all, p.shape.L, image)
	y := o.finalNorm.forward(p, target, p.mod.final)
	p.probe("final_layer.norm", y)
	o.final.Forward(p.c, pred, y)
	p.probe(o.final.name, pred)
}

// headBackward assigns the gradient of the last block's output.
func (o *outer) headBackward(p *pass, d residual, dpred tensor.Tensor) {
	defer p.c.Scope()()
	image, _ := p.shape.Tokens()
	dx := p.c.New(p.shape.B*image, p.width)
	o.final.Backward(p.c, dx, dpred, tensor.Tensor{}, false)
	o.finalNorm.backward(p, dx, dx, false)
	p.c.Run(ops.Zero{Y: d.all})
	p.putTokens(d.all, dx, p.shape.L, image)
}
