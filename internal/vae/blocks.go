package vae

import (
	"fmt"

	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// net queues the model's parts for one image; all activations are [1, C, H, W].
// A part that keeps its width adds to its input in place, so that a resolution
// needs three planes of memory: the input and two of scratch.
type net struct {
	*ops.Ctx
	groups  int
	weights map[string]tensor.Tensor           // by diffusers' name
	tap     func(name string, t tensor.Tensor) // sees activations in tests; nil in use
}

// weight returns a tensor of the model.
func (n *net) weight(name string) tensor.Tensor {
	w, ok := n.weights[name]
	if !ok {
		panic(fmt.Sprintf("vae: %s is not among the weights", name))
	}
	return w
}

// see gives a part's result to the tap.
func (n *net) see(name string, t tensor.Tensor) tensor.Tensor {
	if n.tap != nil {
		n.tap(name, t)
	}
	return t
}

// conv is a convolution with bias that keeps the size: 3x3 with padding 1, or 1x1.
func (n *net) conv(name string, x tensor.Tensor) tensor.Tensor {
	w := n.weight(name + ".weight")
	y := n.New(1, w.Shape[0], x.Shape[2], x.Shape[3])
	n.convInto(y, name, x)
	return n.see(name, y)
}

func (n *net) convInto(y tensor.Tensor, name string, x tensor.Tensor) {
	w := n.weight(name + ".weight")
	pad := w.Shape[2] / 2
	n.Run(ops.Conv2D{Y: y, X: x, W: w, Bias: n.weight(name + ".bias"), Stride: 1, Pad: pad, PadEnd: pad})
}

// norm is group normalisation into y, with SiLU behind it where silu is set.
func (n *net) norm(y tensor.Tensor, name string, x tensor.Tensor, silu bool) {
	n.Run(ops.GroupNorm{Y: y, X: x, W: n.weight(name + ".weight"), B: n.weight(name + ".bias"), Groups: n.groups, Eps: GroupNormEps, SiLU: silu})
}

// resnet is x + conv2(silu(norm2(conv1(silu(norm1(x)))))), with a 1x1
// convolution of x in place of x where the width changes.
func (n *net) resnet(name string, x tensor.Tensor) tensor.Tensor {
	out, h, w := n.weight(name + ".conv1.weight").Shape[0], x.Shape[2], x.Shape[3]
	y := x
	if out != x.Shape[1] {
		y = n.New(1, out, h, w)
		n.convInto(y, name+".conv_shortcut", x)
	}
	defer n.Scope()()
	a := n.New(x.Shape...) // [1, in, H, W]
	n.norm(a, name+".norm1", x, true)
	b := n.New(1, out, h, w)
	n.convInto(b, name+".conv1", a)
	n.norm(b, name+".norm2", b, true)
	if out != x.Shape[1] {
		a = n.New(1, out, h, w)
	}
	n.convInto(a, name+".conv2", b)
	n.Run(ops.Add{Y: rows(y), A: rows(y), B: rows(a)})
	return n.see(name, y)
}

// attention adds to x, in place, single-head attention over its positions.
func (n *net) attention(name string, x tensor.Tensor) tensor.Tensor {
	defer n.Scope()()
	c, hw := x.Shape[1], x.Shape[2]*x.Shape[3]
	a := n.New(x.Shape...)
	n.norm(a, name+".group_norm", x, false)
	tokens := n.New(hw, c)
	n.Run(ops.Transpose{Y: tokens, X: a.View(c, hw), Batch: 1})
	q := n.linear(name+".to_q", tokens) // [H·W, C]
	k := n.linear(name+".to_k", tokens) // [H·W, C]
	v := n.linear(name+".to_v", tokens) // [H·W, C]
	n.Run(ops.Attention{O: tokens, Q: q, K: k, V: v, Batch: 1, Heads: 1})
	o := n.linear(name+".to_out.0", tokens) // [H·W, C]
	n.Run(
		ops.Transpose{Y: a.View(c, hw), X: o, Batch: 1},
		ops.Add{Y: rows(x), A: rows(x), B: rows(a)},
	)
	return n.see(name, x)
}

// linear is x·Wᵀ + b.
func (n *net) linear(name string, x tensor.Tensor) tensor.Tensor {
	w := n.weight(name + ".weight")
	y := n.New(x.Rows(), w.Shape[0])
	n.Run(
		ops.Gemm{C: y, A: x, B: w, TransB: true, Alpha: 1},
		ops.AddBias{Y: y, X: y, Bias: n.weight(name + ".bias")},
	)
	return y
}

// mid is the block at the coarsest resolution.
func (n *net) mid(name string, x tensor.Tensor, attention bool) tensor.Tensor {
	x = n.resnet(name+".resnets.0", x)
	if attention {
		x = n.attention(name+".attentions.0", x)
	}
	return n.see(name, n.resnet(name+".resnets.1", x))
}

// head is the last norm, SiLU and convolution of a coder. It overwrites x.
func (n *net) head(name string, x tensor.Tensor) tensor.Tensor {
	n.norm(x, name+".conv_norm_out", x, false)
	n.see(name+".conv_norm_out", x)
	n.Run(ops.SiLU{Y: rows(x), X: rows(x)})
	n.see(name+".conv_act", x)
	return n.see(name, n.conv(name+".conv_out", x))
}

// rows sees an activation as one row per channel.
func rows(x tensor.Tensor) tensor.Tensor { return x.View(x.Shape[1], x.Shape[2]*x.Shape[3]) }

// moments maps pixels [1, 3, H, W] to the mean and log-variance of the latent,
// [1, 2·latent, H/8, W/8].
func (n *net) moments(cfg Config, pixels tensor.Tensor) tensor.Tensor {
	x := n.conv("encoder.conv_in", pixels)
	for i, c := range cfg.Channels {
		block := fmt.Sprintf("encoder.down_blocks.%d", i)
		for j := range cfg.LayersPerBlock {
			x = n.resnet(fmt.Sprintf("%s.resnets.%d", block, j), x)
		}
		if i < len(cfg.Channels)-1 {
			// Zeros right and below only.
			down := block + ".downsamplers.0.conv"
			y := n.New(1, c, x.Shape[2]/2, x.Shape[3]/2)
			n.Run(ops.Conv2D{Y: y, X: x, W: n.weight(down + ".weight"), Bias: n.weight(down + ".bias"), Stride: 2, PadEnd: 1})
			x = y
		}
		n.see(block, x)
	}
	x = n.head("encoder", n.mid("encoder.mid_block", x, cfg.MidAttention))
	if cfg.QuantConv {
		x = n.conv("quant_conv", x)
	}
	return x
}

// pixels maps a latent [1, latent, h, w] to pixels [1, 3, 8h, 8w], unclamped.
func (n *net) pixels(cfg Config, z tensor.Tensor) tensor.Tensor {
	x := z
	if cfg.PostQuantConv {
		x = n.conv("post_quant_conv", x)
	}
	x = n.mid("decoder.mid_block", n.conv("decoder.conv_in", x), cfg.MidAttention)
	for i := range cfg.Channels {
		block := fmt.Sprintf("decoder.up_blocks.%d", i)
		for j := range cfg.LayersPerBlock + 1 {
			x = n.resnet(fmt.Sprintf("%s.resnets.%d", block, j), x)
		}
		if i < len(cfg.Channels)-1 {
			c, h, w := x.Shape[1], x.Shape[2], x.Shape[3]
			y := n.New(1, c, 2*h, 2*w)
			mark := n.Arena.Mark()
			wide := n.New(1, c, 2*h, 2*w)
			n.Run(ops.Upsample2x{Y: wide, X: x})
			n.convInto(y, block+".upsamplers.0.conv", wide)
			n.Arena.Release(mark)
			x = y
		}
		n.see(block, x)
	}
	return n.head("decoder", x)
}
