package tinymodel

import "fmt"

// tower draws a text tower of four layers, hidden width 32, four query heads
// and two key-value heads of 8, under the names that transformers writes.
func tower(kind Kind, seed uint64) []weight {
	const (
		layers, hidden, inner, vocab = 4, 32, 64, 400
		heads, kv, headDim           = 4, 2, 8
	)
	m := &maker{seed: seed, part: "tower"}
	prefix := "model."
	if kind == Dev {
		prefix = "language_model.model."
	}
	m.normal(prefix+"embed_tokens.weight", 1, vocab, hidden)
	for i := range layers {
		b := fmt.Sprintf("%slayers.%d.", prefix, i)
		m.constant(b+"input_layernorm.weight", 1, hidden)
		m.constant(b+"post_attention_layernorm.weight", 1, hidden)
		m.linear(b+"self_attn.q_proj.weight", 1, heads*headDim, hidden)
		m.linear(b+"self_attn.k_proj.weight", 1, kv*headDim, hidden)
		m.linear(b+"self_attn.v_proj.weight", 1, kv*headDim, hidden)
		m.linear(b+"self_attn.o_proj.weight", 1, hidden, heads*headDim)
		if kind == Klein {
			m.constant(b+"self_attn.q_norm.weight", 1, headDim)
			m.constant(b+"self_attn.k_norm.weight", 1, headDim)
		}
		m.linear(b+"mlp.gate_proj.weight", 1, inner, hidden)
		m.linear(b+"mlp.up_proj.weight", 1, inner, hidden)
		m.linear(b+"mlp.down_proj.weight", 1, hidden, inner)
	}
	m.constant(prefix+"norm.weight", 1, hidden)
	if kind == Dev {
		m.linear("language_model.lm_head.weight", 1, vocab, hidden)
	}
	return m.out
}
