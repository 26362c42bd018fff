package adapter

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"longship/gpu"
	"longship/internal/nn"
	"longship/internal/safetensors"
)

// File is an adapter file of any layout in use: ai-toolkit's and ComfyUI's with
// BFL names, diffusers', kohya's.
type File struct {
	Layers []Layer // in the model's order
	a, b   []safetensors.Tensor
}

// Read finds the pairs of an open adapter file among a model's modules. A
// tensor that has no place in the model, half a pair, or a shape that does not
// fit is an error that names it. f must stay open while the File is used.
//
// The weight of a pair comes from its alpha tensor, else from diffusers'
// metadata, else it is 1.
func Read(f *safetensors.File, modules []nn.Module) (*File, error) {
	meta, err := readMetadata(f.Metadata["lora_adapter_metadata"])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path(), err)
	}
	pairs, err := collect(f, modules)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path(), err)
	}
	out := &File{}
	for _, m := range modules {
		for _, target := range targetsOf(m) {
			p, ok := pairs[target.Name()]
			if !ok {
				continue
			}
			layer, err := p.layer(target, meta)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", f.Path(), target.Name(), err)
			}
			out.Layers = append(out.Layers, layer)
			out.a, out.b = append(out.a, *p.a), append(out.b, *p.b)
		}
	}
	if len(out.Layers) == 0 {
		return nil, fmt.Errorf("%s: no low-rank pairs in it", f.Path())
	}
	return out, nil
}

// Write sets a Set that was made of the file's Layers to the file's values.
func (f *File) Write(s *Set, st gpu.Stream) error {
	from := map[string]safetensors.Tensor{}
	for i, l := range f.Layers {
		from[Param{Layer: l, Part: PartA}.Name()] = f.a[i]
		from[Param{Layer: l, Part: PartB}.Name()] = f.b[i]
	}
	return s.Write(st, func(p Param, dst []float32) error {
		t, ok := from[p.Name()]
		if !ok {
			return fmt.Errorf("adapter: %s is not in the file", p.Name())
		}
		return t.Floats(dst, 0)
	})
}

// half is what a file has of one pair.
type half struct {
	a, b, alpha *safetensors.Tensor
}

// collect sorts a file's tensors by the target they belong to.
func collect(f *safetensors.File, modules []nn.Module) (map[string]*half, error) {
	places := aliases(modules)
	pairs := map[string]*half{}
	for _, name := range f.Names() {
		stem, kind := splitSuffix(name)
		target, ok := places[stem]
		if kind == "" || !ok {
			return nil, fmt.Errorf("tensor %q belongs to no low-rank pair of this model", name)
		}
		p := pairs[target.Name()]
		if p == nil {
			p = &half{}
			pairs[target.Name()] = p
		}
		slot := map[string]**safetensors.Tensor{PartA: &p.a, PartB: &p.b, "alpha": &p.alpha}[kind]
		if *slot != nil {
			return nil, fmt.Errorf("tensors %q and %q are both the %s of %s", (*slot).Name, name, kind, target.Name())
		}
		t, _ := f.Tensor(name)
		*slot = &t
	}
	return pairs, nil
}

// layer checks a pair against its target.
func (p *half) layer(t Target, meta metadata) (Layer, error) {
	if p.a == nil || p.b == nil {
		return Layer{}, errors.New("one half of the pair is missing")
	}
	if len(p.a.Shape) != 2 || p.a.Shape[0] < 1 || p.a.Shape[1] != t.Module.In {
		return Layer{}, fmt.Errorf("lora_A has shape %v, not [rank %d]", p.a.Shape, t.Module.In)
	}
	rank := p.a.Shape[0]
	if len(p.b.Shape) != 2 || p.b.Shape[0] != t.Hi-t.Lo || p.b.Shape[1] != rank {
		return Layer{}, fmt.Errorf("lora_B has shape %v, not [%d %d]", p.b.Shape, t.Hi-t.Lo, rank)
	}
	l := Layer{Target: t, Rank: rank, Alpha: meta.alpha(rank)}
	if p.alpha != nil {
		v, err := p.alpha.Float32()
		if err != nil {
			return Layer{}, err
		}
		if len(v) != 1 {
			return Layer{}, fmt.Errorf("alpha has shape %v", p.alpha.Shape)
		}
		l.Alpha = float64(v[0])
	}
	if math.IsNaN(l.Alpha) || math.IsInf(l.Alpha, 0) {
		return Layer{}, fmt.Errorf("alpha is %v", l.Alpha)
	}
	return l, nil
}

// metadata is what diffusers writes about an adapter (a PEFT LoraConfig).
type metadata struct {
	Alpha  *float64 `json:"transformer.lora_alpha"`
	RSLoRA bool     `json:"transformer.use_rslora"`
	DoRA   bool     `json:"transformer.use_dora"`
}

func readMetadata(text string) (metadata, error) {
	var m metadata
	if text == "" {
		return m, nil
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return m, fmt.Errorf("lora_adapter_metadata: %w", err)
	}
	if m.DoRA {
		return m, errors.New("lora_adapter_metadata: a DoRA adapter is not a LoRA")
	}
	return m, nil
}

// alpha returns the alpha of a pair without an alpha tensor. Rank-stabilised
// LoRA scales by alpha/√r instead of alpha/r.
func (m metadata) alpha(rank int) float64 {
	switch {
	case m.Alpha == nil:
		return float64(rank)
	case m.RSLoRA:
		return *m.Alpha * math.Sqrt(float64(rank))
	default:
		return *m.Alpha
	}
}

var suffixes = []struct{ text, kind string }{
	{".lora_A.weight", PartA}, {".lora_B.weight", PartB},
	{".lora_A.default.weight", PartA}, {".lora_B.default.weight", PartB},
	{".lora_down.weight", PartA}, {".lora_up.weight", PartB},
	{".lora.down.weight", PartA}, {".lora.up.weight", PartB},
	{".alpha", "alpha"},
}

// splitSuffix cuts a tensor's name into the module's and what it is; kind is
// empty where it is nothing known.
func splitSuffix(name string) (stem, kind string) {
	for _, s := range suffixes {
		if stem, ok := strings.CutSuffix(name, s.text); ok {
			return stem, s.kind
		}
	}
	return name, ""
}

// targetsOf returns all places in a module: the whole, and its parts where it
// has several.
func targetsOf(m nn.Module) []Target {
	ts := []Target{{Module: m, Lo: 0, Hi: m.Out}}
	if len(m.Parts) > 1 {
		for _, p := range m.Parts {
			ts = append(ts, Target{Module: m, Lo: p.Lo, Hi: p.Hi})
		}
	}
	return ts
}

// aliases returns the places in a model by every name that files call them:
// with the prefixes in use, and with underscores for dots as kohya writes.
func aliases(modules []nn.Module) map[string]Target {
	dotted := []string{"", "diffusion_model.", "transformer.", "base_model.model."}
	flat := []string{"lora_unet_", "lora_transformer_", "lycoris_"}
	places := map[string]Target{}
	add := func(name string, t Target) {
		for _, prefix := range dotted {
			places[prefix+name] = t
		}
		for _, prefix := range flat {
			places[prefix+strings.ReplaceAll(name, ".", "_")] = t
		}
	}
	for _, m := range modules {
		add(m.Name, Target{Module: m, Lo: 0, Hi: m.Out})
		for _, p := range m.Parts {
			add(p.Name, Target{Module: m, Lo: p.Lo, Hi: p.Hi})
		}
	}
	return places
}
