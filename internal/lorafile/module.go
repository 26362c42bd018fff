package lorafile

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"longship/internal/safetensors"
)

// The parts of adapters, however a file calls them.
const (
	partA     = "A"
	partB     = "B"
	partAlpha = "alpha"
	partLoKr  = "lokr_"
	partLoHa  = "hada_"
	partFull  = "diff"
)

// endings are how names of tensors end, and the part that means.
var endings = []struct{ text, part string }{
	{".lora_A.weight", partA}, {".lora_B.weight", partB},
	{".lora_A.default.weight", partA}, {".lora_B.default.weight", partB},
	{".lora_down.weight", partA}, {".lora_up.weight", partB},
	{".lora.down.weight", partA}, {".lora.up.weight", partB},
	{"_lora.down.weight", partA}, {"_lora.up.weight", partB},
	{".lora_linear_layer.down.weight", partA}, {".lora_linear_layer.up.weight", partB},
	{".alpha", partAlpha}, {".diff", partFull}, {".diff_b", partFull + "_b"}, {".dora_scale", partDoRA},
	{".lora_magnitude_vector", partDoRA}, {".lora_magnitude_vector.weight", partDoRA}, {".lora_magnitude_vector.default.weight", partDoRA},
}

// splitPart cuts a tensor's name into the module's and the part; the part is
// empty where it is nothing known.
func splitPart(name string) (stem, part string) {
	for _, e := range endings {
		if stem, ok := strings.CutSuffix(name, e.text); ok {
			return stem, e.part
		}
	}
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		if last := name[i+1:]; strings.HasPrefix(last, partLoKr) || strings.HasPrefix(last, partLoHa) {
			return name[:i], last
		}
	}
	return name, ""
}

// prefixes are how modules' names begin in each layout. The first that fits counts.
var prefixes = []struct{ text, layout string }{
	{"base_model.model.", "peft"}, {"diffusion_model.", ComfyUI}, {"transformer.", Diffusers},
	{"lora_unet_", "kohya"}, {"lora_transformer_", "lycoris"}, {"lycoris_", "lycoris"},
	{"transformer_blocks.", Diffusers}, {"single_transformer_blocks.", Diffusers},
}

// splitLayout cuts the prefix off a module's name and says whose it is.
func splitLayout(stem string) (layout, name string) {
	for _, p := range prefixes {
		rest, ok := strings.CutPrefix(stem, p.text)
		switch {
		case !ok:
		case strings.HasSuffix(p.text, "blocks."):
			return p.layout, stem
		default:
			return p.layout, rest
		}
	}
	return "unknown", stem
}

// parts are the tensors of one module.
type parts map[string]safetensors.Tensor

// module describes one module. Half a pair, and shapes that do not go together,
// are errors.
func (p parts) module(name string, peft peftConfig) (Module, error) {
	a, hasA := p[partA]
	b, hasB := p[partB]
	m := Module{Name: name, Kind: p.kind()}
	if !hasA && !hasB {
		return m, p.finite(&m)
	}
	if !hasA || !hasB {
		return m, fmt.Errorf("%s: one half of the pair is missing", name)
	}
	if len(a.Shape) != 2 || len(b.Shape) != 2 || a.Shape[0] != b.Shape[1] || a.Len() == 0 || b.Len() == 0 {
		return m, fmt.Errorf("%s: A %v and B %v are no pair", name, a.Shape, b.Shape)
	}
	m.Rank, m.In, m.Out = a.Shape[0], a.Shape[1], b.Shape[0]
	m.Alpha = float64(m.Rank)
	if alpha, ok := p[partAlpha]; ok {
		v, err := alpha.Float32()
		if err != nil {
			return m, err
		}
		if len(v) != 1 {
			return m, fmt.Errorf("%s: alpha has shape %v", name, alpha.Shape)
		}
		m.Alpha = float64(v[0])
	} else if peft.Rank > 0 {
		m.Alpha = peft.Alpha
		if alpha, ok := peft.Pattern[name]; ok {
			m.Alpha = alpha
		}
	}
	m.Scale = m.Alpha / float64(m.Rank)
	if peft.RSLoRA {
		m.Scale = m.Alpha / math.Sqrt(float64(m.Rank))
	}
	return m, m.norms(a, b)
}

// kind names the adapter by its parts.
func (p parts) kind() string {
	for part := range p {
		switch {
		case part == partA, part == partB:
			return "lora"
		case strings.HasPrefix(part, partLoKr):
			return "lokr"
		case strings.HasPrefix(part, partLoHa):
			return "loha"
		case strings.HasPrefix(part, partFull):
			return "full"
		}
	}
	return "unknown"
}

// finite counts the values that are not.
func (p parts) finite(m *Module) error {
	for _, t := range p {
		values, err := t.Float32()
		if err != nil {
			return err
		}
		for _, v := range values {
			if v-v != 0 {
				m.NonFinite++
			}
		}
	}
	return nil
}

// normRank is the rank up to which the norm of the product is computed: its
// work grows with the square of the rank.
const normRank = 512

// norms computes ‖A‖, ‖B‖ and ‖s·B·A‖ = s·√Σ (A·Aᵀ) ∘ (Bᵀ·B), which needs no
// matrix of the model's size.
func (m *Module) norms(a, b safetensors.Tensor) error {
	av, err := m.values(a)
	if err != nil {
		return err
	}
	bv, err := m.values(b)
	if err != nil {
		return err
	}
	m.NormA, m.NormB = norm(av), norm(bv)
	if m.NonFinite > 0 || m.Rank > normRank {
		return nil
	}
	ga, gb := square(m.Rank), square(m.Rank)
	A := blas64.General{Rows: m.Rank, Cols: m.In, Stride: m.In, Data: av}
	B := blas64.General{Rows: m.Out, Cols: m.Rank, Stride: m.Rank, Data: bv}
	blas64.Gemm(blas.NoTrans, blas.Trans, 1, A, A, 0, ga)
	blas64.Gemm(blas.Trans, blas.NoTrans, 1, B, B, 0, gb)
	sum := 0.0
	for i, v := range ga.Data {
		sum += v * gb.Data[i]
	}
	m.Norm = math.Abs(m.Scale) * math.Sqrt(max(0, sum))
	return nil
}

func square(n int) blas64.General {
	return blas64.General{Rows: n, Cols: n, Stride: n, Data: make([]float64, n*n)}
}

// values reads a tensor; values that are not finite are counted and become 0.
func (m *Module) values(t safetensors.Tensor) ([]float64, error) {
	narrow, err := t.Float32()
	if err != nil {
		return nil, err
	}
	wide := make([]float64, len(narrow))
	for i, v := range narrow {
		if v-v != 0 {
			m.NonFinite++
			continue
		}
		wide[i] = float64(v)
	}
	return wide, nil
}

func norm(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x * x
	}
	return math.Sqrt(sum)
}
