package weights

import (
	"fmt"
	"slices"
	"strings"

	"longship/internal/flux2"
	"longship/internal/safetensors"
)

// Layout is how a file names the weights of a FLUX.2 transformer: Prefix and
// then BFL's names, which are ours, or those of diffusers.
type Layout struct {
	Prefix    string
	Diffusers bool
}

// prefixes are what files put before the names: nothing, or what ComfyUI and
// trainers put there to tell the transformer from other models in the file.
var prefixes = []string{"", "model.diffusion_model.", "diffusion_model."}

// The weight that tells a FLUX.2 transformer from other models, in either layout.
const (
	bflProbe       = "single_stream_modulation.lin.weight"
	diffusersProbe = "single_stream_modulation.linear.weight"
)

// DetectLayout returns the layout of a transformer's file; false if it is none.
func DetectLayout(set *safetensors.Set) (Layout, bool) {
	for _, p := range prefixes {
		if _, ok := set.Tensor(p + bflProbe); ok {
			return Layout{Prefix: p}, true
		}
		if _, ok := set.Tensor(p + diffusersProbe); ok {
			return Layout{Prefix: p, Diffusers: true}, true
		}
	}
	return Layout{}, false
}

// foreign says whether a tensor of a prefixed file belongs to another model in it.
func (l Layout) foreign(name string) bool {
	return l.Prefix != "" && !strings.HasPrefix(name, l.Prefix)
}

// Targets returns where a file of this layout has each weight of the model:
// the units of the blocks in forward order, then the outer one.
func (l Layout) Targets(c flux2.Config) []Target {
	var ts []Target
	for _, u := range append(c.Units(), c.Outer()) {
		for _, t := range u.Tensors {
			ts = append(ts, Target{Name: t.Name, Shape: t.Shape, Parts: l.parts(t)})
		}
	}
	return ts
}

// parts returns what a canonical weight is made of.
func (l Layout) parts(t flux2.Tensor) []Part {
	if !l.Diffusers {
		return []Part{{Tensor: l.Prefix + t.Name}}
	}
	names := diffusersNames(t.Name)
	if t.Name == finalModulation { // ours has rows [shift; scale], diffusers [scale; shift]
		half := t.Shape[0] / 2
		return []Part{{l.Prefix + names[0], half, 2 * half}, {l.Prefix + names[0], 0, half}}
	}
	parts := make([]Part, len(names))
	for i, n := range names {
		parts[i] = Part{Tensor: l.Prefix + n}
	}
	return parts
}

const finalModulation = "final_layer.adaLN_modulation.1.weight"

// outerNames are the names of the weights outside the blocks, ours and diffusers'.
var outerNames = map[string]string{
	"img_in.weight":                           "x_embedder.weight",
	"txt_in.weight":                           "context_embedder.weight",
	"time_in.in_layer.weight":                 "time_guidance_embed.timestep_embedder.linear_1.weight",
	"time_in.out_layer.weight":                "time_guidance_embed.timestep_embedder.linear_2.weight",
	"guidance_in.in_layer.weight":             "time_guidance_embed.guidance_embedder.linear_1.weight",
	"guidance_in.out_layer.weight":            "time_guidance_embed.guidance_embedder.linear_2.weight",
	"double_stream_modulation_img.lin.weight": "double_stream_modulation_img.linear.weight",
	"double_stream_modulation_txt.lin.weight": "double_stream_modulation_txt.linear.weight",
	"single_stream_modulation.lin.weight":     "single_stream_modulation.linear.weight",
	"final_layer.linear.weight":               "proj_out.weight",
	finalModulation:                           "norm_out.linear.weight",
}

// blockNames are the names inside a block: ours, and those of diffusers, whose
// rows make ours one below the other.
var blockNames = map[string]map[string][]string{
	"double_blocks": {
		"img_attn.qkv.weight":            {"attn.to_q.weight", "attn.to_k.weight", "attn.to_v.weight"},
		"img_attn.norm.query_norm.scale": {"attn.norm_q.weight"},
		"img_attn.norm.key_norm.scale":   {"attn.norm_k.weight"},
		"img_attn.proj.weight":           {"attn.to_out.0.weight"},
		"img_mlp.0.weight":               {"ff.linear_in.weight"},
		"img_mlp.2.weight":               {"ff.linear_out.weight"},
		"txt_attn.qkv.weight":            {"attn.add_q_proj.weight", "attn.add_k_proj.weight", "attn.add_v_proj.weight"},
		"txt_attn.norm.query_norm.scale": {"attn.norm_added_q.weight"},
		"txt_attn.norm.key_norm.scale":   {"attn.norm_added_k.weight"},
		"txt_attn.proj.weight":           {"attn.to_add_out.weight"},
		"txt_mlp.0.weight":               {"ff_context.linear_in.weight"},
		"txt_mlp.2.weight":               {"ff_context.linear_out.weight"},
	},
	"single_blocks": {
		"linear1.weight":        {"attn.to_qkv_mlp_proj.weight"},
		"linear2.weight":        {"attn.to_out.weight"},
		"norm.query_norm.scale": {"attn.norm_q.weight"},
		"norm.key_norm.scale":   {"attn.norm_k.weight"},
	},
}

// blockFolders are diffusers' names for the two kinds of block.
var blockFolders = map[string]string{
	"double_blocks": "transformer_blocks",
	"single_blocks": "single_transformer_blocks",
}

// diffusersNames returns the tensors of the diffusers layout that make up a
// canonical weight.
func diffusersNames(canonical string) []string {
	if n, ok := outerNames[canonical]; ok {
		return []string{n}
	}
	kind, rest, _ := strings.Cut(canonical, ".")
	number, inner, _ := strings.Cut(rest, ".")
	names := blockNames[kind][inner]
	if names == nil {
		panic(fmt.Sprintf("weights: no diffusers name for %q", canonical))
	}
	names = slices.Clone(names)
	for i, n := range names {
		names[i] = fmt.Sprintf("%s.%s.%s", blockFolders[kind], number, n)
	}
	return names
}
