package tinymodel

import (
	"fmt"
	"math"

	"longship/internal/flux2"
	"longship/internal/rng"
)

// maker draws named random tensors.
type maker struct {
	seed uint64
	part string
	out  []weight
}

// linear adds an [out, in] matrix of N(0, gain²/in).
func (m *maker) linear(name string, gain float64, out, in int) {
	m.normal(name, gain/math.Sqrt(float64(in)), out, in)
}

func (m *maker) normal(name string, std float64, shape ...int) {
	n := 1
	for _, d := range shape {
		n *= d
	}
	data := make([]float32, n)
	rng.New(m.seed, "tinymodel/"+m.part, name).FillNormal(data, 0)
	for i := range data {
		data[i] *= float32(std)
	}
	m.out = append(m.out, weight{name, data, shape})
}

func (m *maker) constant(name string, value float32, n int) {
	data := make([]float32, n)
	for i := range data {
		data[i] = value
	}
	m.out = append(m.out, weight{name, data, []int{n}})
}

// transformer draws a transformer in diffusers' layout. Every matrix keeps the
// variance of its input; what writes to a residual stream is damped, so that
// the stream's token still shows at the output.
func transformer(c flux2.Config, seed uint64) []weight {
	m := &maker{seed: seed, part: "transformer"}
	d, inner := c.Width(), c.Inner()
	const residual = 0.5

	m.linear("x_embedder.weight", 1, d, c.InChannels)
	m.linear("context_embedder.weight", 1, d, c.TextDim)
	embedders := []string{"timestep_embedder"}
	if c.Guidance {
		embedders = append(embedders, "guidance_embedder")
	}
	for _, e := range embedders {
		m.linear("time_guidance_embed."+e+".linear_1.weight", 1.4, d, c.TimeChannels)
		m.linear("time_guidance_embed."+e+".linear_2.weight", 1.4, d, d)
	}
	m.linear("double_stream_modulation_img.linear.weight", 1, 6*d, d)
	m.linear("double_stream_modulation_txt.linear.weight", 1, 6*d, d)
	m.linear("single_stream_modulation.linear.weight", 1, 3*d, d)
	m.linear("norm_out.linear.weight", 0.5, 2*d, d)
	m.linear("proj_out.weight", 1, c.OutChannels, d)

	for i := range c.DoubleBlocks {
		b := fmt.Sprintf("transformer_blocks.%d.", i)
		for _, p := range []string{"to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj"} {
			m.linear(b+"attn."+p+".weight", 1, d, d)
		}
		m.linear(b+"attn.to_out.0.weight", residual, d, d)
		m.linear(b+"attn.to_add_out.weight", residual, d, d)
		for _, n := range []string{"norm_q", "norm_k", "norm_added_q", "norm_added_k"} {
			m.constant(b+"attn."+n+".weight", 1, c.HeadDim)
		}
		for _, ff := range []string{"ff", "ff_context"} {
			m.linear(b+ff+".linear_in.weight", 1, 2*inner, d)
			m.linear(b+ff+".linear_out.weight", residual, d, inner)
		}
	}
	for i := range c.SingleBlocks {
		b := fmt.Sprintf("single_transformer_blocks.%d.attn.", i)
		m.linear(b+"to_qkv_mlp_proj.weight", 1, 3*d+2*inner, d)
		m.linear(b+"to_out.weight", residual, d, d+inner)
		m.constant(b+"norm_q.weight", 1, c.HeadDim)
		m.constant(b+"norm_k.weight", 1, c.HeadDim)
	}
	return m.out
}
