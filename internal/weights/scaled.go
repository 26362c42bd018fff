package weights

import (
	"strings"

	"longship/internal/safetensors"
)

// Files that hold float8 weights with a scale a tensor, as ComfyUI writes them,
// name the scale after the weight: "X.weight_scale", in older files
// "X.scale_weight". Beside them stand what only inference needs, the input's
// scale, and a note of the format.
var (
	scaleSuffixes = []string{"weight_scale", "scale_weight"}
	noteSuffixes  = []string{"input_scale", "scale_input", "comfy_quant"}
)

// scaleOf returns the scale of a tensor's values, 1 where the file has none.
func scaleOf(set *safetensors.Set, x safetensors.Tensor) (float32, error) {
	stem, ok := strings.CutSuffix(x.Name, "weight")
	if !ok || x.DType.Bits() != 8 {
		return 1, nil
	}
	for _, suffix := range scaleSuffixes {
		s, ok := set.Tensor(stem + suffix)
		if !ok {
			continue
		}
		if s.Len() != 1 || s.DType != safetensors.F32 {
			return 0, s.Errorf("%s%v is no scale of a float8 tensor: one F32 value is", s.DType, s.Shape)
		}
		v, err := s.Float32()
		if err != nil {
			return 0, err
		}
		return v[0], nil
	}
	return 1, nil
}

// isScaleOf says whether name belongs to a used weight, as its scale or a note.
func isScaleOf(name string, used map[string]bool) bool {
	for _, suffixes := range [][]string{scaleSuffixes, noteSuffixes} {
		for _, s := range suffixes {
			if stem, ok := strings.CutSuffix(name, s); ok && used[stem+"weight"] {
				return true
			}
		}
	}
	return name == "scaled_fp8" || strings.HasSuffix(name, ".scaled_fp8")
}
