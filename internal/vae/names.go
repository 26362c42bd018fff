package vae

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// bflName returns the name of a tensor in BFL's ae.safetensors; name is
// diffusers', levels the number of resolutions. BFL numbers the decoder's
// resolutions from the finest, diffusers in the order of the forward pass.
func bflName(name string, levels int) string {
	switch {
	case strings.HasPrefix(name, "quant_conv."):
		return "encoder." + name
	case strings.HasPrefix(name, "post_quant_conv."):
		return "decoder." + name
	}
	name = upBlock.ReplaceAllStringFunc(name, func(s string) string {
		i, _ := strconv.Atoi(upBlock.FindStringSubmatch(s)[1])
		return fmt.Sprintf("up.%d.", levels-1-i)
	})
	return bflParts.Replace(name)
}

var upBlock = regexp.MustCompile(`up_blocks\.(\d+)\.`)

var bflParts = strings.NewReplacer(
	"down_blocks.", "down.",
	"mid_block.resnets.0.", "mid.block_1.",
	"mid_block.resnets.1.", "mid.block_2.",
	"mid_block.attentions.0.group_norm.", "mid.attn_1.norm.",
	"mid_block.attentions.0.to_q.", "mid.attn_1.q.",
	"mid_block.attentions.0.to_k.", "mid.attn_1.k.",
	"mid_block.attentions.0.to_v.", "mid.attn_1.v.",
	"mid_block.attentions.0.to_out.0.", "mid.attn_1.proj_out.",
	".resnets.", ".block.",
	".downsamplers.0.conv.", ".downsample.conv.",
	".upsamplers.0.conv.", ".upsample.conv.",
	".conv_shortcut.", ".nin_shortcut.",
	".conv_norm_out.", ".norm_out.",
)
