package lorafile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"longship/internal/safetensors"
)

// Report is what is in an adapter file.
type Report struct {
	Path     string            `json:"path"`
	Bytes    int64             `json:"bytes"`
	Hash     string            `json:"hash"`   // SHA-256 of the tensors' bytes, the sshs_model_hash
	Layout   string            `json:"layout"` // comfyui, diffusers, kohya, lycoris, peft, unknown; several with commas
	Base     string            `json:"base"`   // the model it fits by its shapes, or what its metadata says
	Params   int64             `json:"params"` // elements of the pairs
	DTypes   []string          `json:"dtypes"`
	Modules  []Module          `json:"modules"` // by name
	Metadata map[string]string `json:"metadata"`
	Notes    []string          `json:"notes"` // what a reader should know: faults, and what loaders make of the file
}

// Module is what a file has for one module of the model.
type Module struct {
	Name      string  `json:"name"` // as in the file, without prefix
	Kind      string  `json:"kind"` // lora, lokr, loha, full
	Rank      int     `json:"rank,omitempty"`
	In        int     `json:"in,omitempty"`
	Out       int     `json:"out,omitempty"`
	Alpha     float64 `json:"alpha,omitempty"`
	Scale     float64 `json:"scale,omitempty"`  // what the product is multiplied by
	NormA     float64 `json:"norm_a,omitempty"` // Frobenius norms
	NormB     float64 `json:"norm_b,omitempty"`
	Norm      float64 `json:"norm,omitempty"` // of Scale·B·A; 0 above rank 512, where it takes too long
	NonFinite int     `json:"non_finite,omitempty"`
}

// Inspect reads an adapter file of any layout.
func Inspect(path string) (*Report, error) {
	f, err := openTensors(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	path = f.Path()
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	digest, err := DigestFile(path)
	if err != nil {
		return nil, err
	}
	r := &Report{Path: path, Bytes: info.Size(), Hash: digest.Data, Metadata: f.Metadata}
	groups, err := r.group(f)
	if err != nil {
		return nil, err
	}
	peft := r.peft()
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		m, err := groups[name].module(name, peft)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		r.Modules = append(r.Modules, m)
	}
	r.Base = base(r)
	r.note(peft)
	return r, nil
}

// group sorts a file's tensors by module and part, and learns layout, types and size.
func (r *Report) group(f *safetensors.File) (map[string]parts, error) {
	groups := map[string]parts{}
	layouts, types := map[string]bool{}, map[string]bool{}
	var strange []string
	for _, t := range f.Tensors {
		stem, part := splitPart(t.Name)
		if part == "" {
			strange = append(strange, t.Name)
			continue
		}
		layout, name := splitLayout(stem)
		layouts[layout] = true
		if groups[name] == nil {
			groups[name] = parts{}
		}
		if groups[name][part].Name != "" {
			return nil, fmt.Errorf("%s: tensors %q and %q are both the %s of %s", r.Path, groups[name][part].Name, t.Name, part, name)
		}
		groups[name][part], _ = f.Tensor(t.Name)
		if part != partAlpha {
			types[strings.ToLower(string(t.DType))] = true
			r.Params += int64(t.Len())
		}
	}
	if len(strange) > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d tensors belong to no adapter that is known here, such as %q", len(strange), strange[0]))
	}
	r.Layout = strings.Join(slices.Sorted(maps.Keys(layouts)), ", ")
	r.DTypes = slices.Sorted(maps.Keys(types))
	return groups, nil
}

// peftConfig is what diffusers' metadata says of rank and alpha.
type peftConfig struct {
	Rank    float64            `json:"transformer.r"`
	Alpha   float64            `json:"transformer.lora_alpha"`
	Pattern map[string]float64 `json:"transformer.alpha_pattern"` // of modules that differ
	RSLoRA  bool               `json:"transformer.use_rslora"`
}

// peft returns diffusers' metadata, the zero value without.
func (r *Report) peft() (c peftConfig) {
	text := r.Metadata["lora_adapter_metadata"]
	if text == "" {
		return c
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		r.Notes = append(r.Notes, "lora_adapter_metadata cannot be read: "+err.Error())
	}
	return c
}

// note adds what loaders make of the file.
func (r *Report) note(peft peftConfig) {
	add := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	if len(r.Modules) == 0 {
		add("there is no adapter in it")
		return
	}
	bad := 0
	for _, m := range r.Modules {
		bad += m.NonFinite
	}
	if bad > 0 {
		add("%d values are not finite: the file is of no use", bad)
	}
	if said, ok := r.Metadata[modelHashKey]; ok && strings.TrimPrefix(said, "0x") != r.Hash {
		add("the tensors are not those that its %s was made of", modelHashKey)
	}
	unscaled := slices.ContainsFunc(r.Modules, func(m Module) bool { return m.Kind == "lora" && math.Abs(m.Scale-1) > 1e-6 })
	if unscaled && peft.Rank > 0 {
		add("ComfyUI does not read alpha from metadata: it applies this adapter with scale 1")
	}
	if unscaled && peft.Rank == 0 && strings.Contains(r.Layout, Diffusers) {
		add("diffusers refuses files of this layout that have alpha tensors")
	}
}

// hidden are the widths of the released models.
var hidden = map[int]string{6144: "FLUX.2-dev", 3072: "FLUX.2-klein-4B", 4096: "FLUX.2-klein-9B"}

// base guesses the model from the input width of attention projections.
func base(r *Report) string {
	for _, m := range r.Modules {
		attention := slices.ContainsFunc([]string{"qkv", "to_q", "to_k", "to_v", "linear1", "to_qkv_mlp_proj"},
			func(end string) bool { return strings.HasSuffix(m.Name, end) })
		if !attention || m.In == 0 {
			continue
		}
		if name, ok := hidden[m.In]; ok {
			return name
		}
		return fmt.Sprintf("a FLUX.2 of width %d", m.In)
	}
	return cmp.Or(r.Metadata["ss_base_model_version"], "unknown")
}
