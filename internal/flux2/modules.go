package flux2

import (
	"fmt"

	"longship/internal/nn"
)

// Modules returns the Linears inside the blocks, in forward order: what
// adapters may be put on. The names in Parts are those of the diffusers layout.
func (c Config) Modules() []nn.Module {
	var ms []nn.Module
	d, inner := c.Width(), c.Inner()
	for i := range c.DoubleBlocks {
		for _, stream := range streams {
			canonical := doublePrefix(i, stream)
			add := func(name string, out, in int, parts ...string) {
				m := nn.Module{Name: canonical + name, Block: i, Stream: stream, Out: out, In: in}
				rows := out / len(parts)
				for k, p := range parts {
					m.Parts = append(m.Parts, nn.Part{Name: fmt.Sprintf("transformer_blocks.%d.%s", i, p), Lo: k * rows, Hi: (k + 1) * rows})
				}
				ms = append(ms, m)
			}
			names := diffusersNames[stream]
			add("_attn.qkv", 3*d, d, names.q, names.k, names.v)
			add("_attn.proj", d, d, names.out)
			add("_mlp.0", 2*inner, d, names.ff+".linear_in")
			add("_mlp.2", d, inner, names.ff+".linear_out")
		}
	}
	for i := range c.SingleBlocks {
		add := func(name string, out, in int, part string) {
			ms = append(ms, nn.Module{Name: singlePrefix(i) + name, Block: c.DoubleBlocks + i, Out: out, In: in,
				Parts: []nn.Part{{Name: fmt.Sprintf("single_transformer_blocks.%d.attn.%s", i, part), Lo: 0, Hi: out}}})
		}
		add(".linear1", 3*d+2*inner, d, "to_qkv_mlp_proj")
		add(".linear2", d, d+inner, "to_out")
	}
	return ms
}

// diffusersNames are the names of a double block's Linears in the diffusers layout.
var diffusersNames = map[string]struct{ q, k, v, out, ff string }{
	"img": {"attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "ff"},
	"txt": {"attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out", "ff_context"},
}
