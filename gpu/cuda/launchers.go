//go:build cuda

package cuda

import "longship/gpu"

// launcher queues one op on a stream: s.kernel for functions of the PTX, s.gemm
// for matrix products. It runs on the goroutine that queues the op, with
// arguments that the op's Check has passed, and must not wait for the card. Its
// error names the argument that this device has no code for.
type launcher func(s *stream, k gpu.Kernel) error

// launchers are the ops of this device by name.
var launchers = map[string]launcher{
	"gemm":                   launchGemm,
	"expand":                 launchExpand,
	"cast":                   launchCast,
	"lookup":                 launchLookup,
	"layer_norm":             launchLayerNorm,
	"layer_norm_backward":    launchLayerNormBackward,
	"rms_norm":               launchRMSNorm,
	"rms_norm_backward":      launchRMSNormBackward,
	"rope":                   launchRoPE,
	"rms_norm_rope":          launchRMSNormRoPE,
	"rms_norm_rope_backward": launchRMSNormRoPEBackward,
	"group_norm":             launchGroupNorm,
	"swiglu":                 launchSwiGLU,
	"swiglu_backward":        launchSwiGLUBackward,
	"silu":                   launchSiLU,
	"silu_backward":          launchSiLUBackward,
	"attention":              launchAttention,
	"attention_backward":     launchAttentionBackward,
	"gate_residual":          launchGateResidual,
	"gate_residual_backward": launchGateResidualBackward,
	"add":                    launchAdd,
	"add_scaled":             launchAddScaled,
	"add_bias":               launchAddBias,
	"scale":                  launchScale,
	"copy":                   launchCopy,
	"zero":                   launchZero,
	"concat":                 launchConcat,
	"split":                  launchSplit,
	"transpose":              launchTranspose,
	"conv2d":                 launchConv2D,
	"upsample2x":             launchUpsample2x,
	"patchify":               launchPatchify,
	"channel_norm":           launchChannelNorm,
	"sinusoid":               launchSinusoid,
	"flow_mix":               launchFlowMix,
	"flow_loss":              launchFlowLoss,
	"sum_squares":            launchSumSquares,
	"clip_norm":              launchClipNorm,
	"adamw":                  launchAdamW,
	"adamw8":                 launchAdamW8,
	"count_step":             launchCountStep,
	"ema":                    launchEMA,
}
