package profile

import "strings"

// Families are the kinds of kernels that a trace tells apart.
var Families = []string{"gemm", "attention", "norm", "expand", "optimizer", "other"}

// Copying is the kind of copies that are queued on the compute stream.
const Copying = "copy"

// Family returns the kind of a kernel by its name (gpu.Kernel.Name).
func Family(kernel string) string {
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(kernel, p) {
				return true
			}
		}
		return false
	}
	switch {
	case kernel == Copying:
		return Copying
	case has("adam", "clip_norm", "sum_squares", "count_step") || kernel == "ema":
		return "optimizer"
	case has("gemm"):
		return "gemm"
	case has("attention"):
		return "attention"
	case has("norm"):
		return "norm"
	case has("expand"):
		return "expand"
	}
	return "other"
}
