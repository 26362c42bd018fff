// Package qwen3 describes the text tower of FLUX.2 klein: Qwen3 4B or 8B
// (Qwen3ForCausalLM), of which the embedding and the first 27 of 36 layers are
// used. The arithmetic is in internal/texttower.
package qwen3

import "longship/internal/texttower"

// Family returns the tower's description.
func Family() texttower.Family {
	return texttower.Family{
		Name:     "Qwen3",
		Types:    []string{"qwen3"},
		Prefixes: []string{"model."},
		QKNorm:   true,
		// One user message and a generation prompt with thinking switched off.
		Template: "<|im_start|>user\n" + texttower.Mark + "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
		PadToken: "<|endoftext|>",
	}
}
