package texttower

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"longship/internal/safetensors"
	"longship/internal/weights"
)

// Files is a tower on disk: its configuration and handles of the weights that
// an embedding needs, whose names and shapes have been checked. A Tower reads
// from it as long as it lives; close the Tower first.
type Files struct {
	Config Config
	Family Family
	Layers []int // the hidden states that make an embedding, in order

	set   *safetensors.Set
	bound *weights.Bound
}

// Open finds the tower in a folder with config.json and weights. layers are the
// hidden states to take, 0 the embedding itself, n the stream after n layers,
// and the last after the final norm; none stands for Config.DefaultLayers. It
// reads headers only, and returns all that is missing or of a wrong shape in
// one error. Layers behind the last one needed may be missing.
func Open(dir string, layers []int, families ...Family) (*Files, error) {
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("text encoder: %w", err)
	}
	f := &Files{Layers: layers}
	if f.Config, err = ParseConfig(text); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "config.json"), err)
	}
	if len(layers) == 0 {
		f.Layers = f.Config.DefaultLayers()
	}
	if f.Family, err = choose(f.Config.Type, families); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "config.json"), err)
	}
	for _, n := range f.Layers {
		if n < 0 || n > f.Config.Layers {
			return nil, fmt.Errorf("text encoder %s: hidden state %d is asked for (layers); it has 0 to %d", dir, n, f.Config.Layers)
		}
	}
	if f.set, err = safetensors.Load(dir); err != nil {
		return nil, fmt.Errorf("text encoder: %w", err)
	}
	if f.bound, err = weights.Bind(f.set, f.targets(), func(string) bool { return true }); err != nil {
		return nil, errors.Join(fmt.Errorf("text encoder: %w", err), f.set.Close())
	}
	return f, nil
}

func choose(kind string, families []Family) (Family, error) {
	var known []string
	for _, f := range families {
		if slices.Contains(f.Types, kind) {
			return f, nil
		}
		known = append(known, f.Types...)
	}
	return Family{}, fmt.Errorf("model_type is %q; known text encoders are %s", kind, strings.Join(known, ", "))
}

// Depth returns how many layers must be run: up to the last hidden state taken.
func (f *Files) Depth() int { return slices.Max(f.Layers) }

// Width returns the width of an embedding, that of the hidden states together.
func (f *Files) Width() int { return len(f.Layers) * f.Config.Hidden }

// normed says whether the final norm is part of what is taken.
func (f *Files) normed() bool { return f.Depth() == f.Config.Layers }

// Paths returns the files that hold the weights in use, sorted.
func (f *Files) Paths() []string {
	var paths []string
	for _, t := range f.targets() {
		if x, ok := f.set.Tensor(t.Parts[0].Tensor); ok && !slices.Contains(paths, x.Path()) {
			paths = append(paths, x.Path())
		}
	}
	slices.Sort(paths)
	return paths
}

// Close closes the files.
func (f *Files) Close() error { return f.set.Close() }

// The names of a tower's tensors, without the family's prefix.
const (
	embedName = "embed_tokens.weight"
	finalNorm = "norm.weight"
)

// layerName returns the name of a tensor of a layer.
func layerName(n int, tensor string) string { return fmt.Sprintf("layers.%d.%s.weight", n, tensor) }

// layerShapes lists the tensors of one layer, norms and linear maps.
func (f *Files) layerShapes() (names []string, shapes map[string][]int) {
	c := f.Config
	shapes = map[string][]int{}
	add := func(name string, dims ...int) {
		names = append(names, name)
		shapes[name] = dims
	}
	add("input_layernorm", c.Hidden)
	add("self_attn.q_proj", c.Heads*c.HeadDim, c.Hidden)
	add("self_attn.k_proj", c.KVHeads*c.HeadDim, c.Hidden)
	add("self_attn.v_proj", c.KVHeads*c.HeadDim, c.Hidden)
	if f.Family.QKNorm {
		add("self_attn.q_norm", c.HeadDim)
		add("self_attn.k_norm", c.HeadDim)
	}
	add("self_attn.o_proj", c.Hidden, c.Heads*c.HeadDim)
	add("post_attention_layernorm", c.Hidden)
	add("mlp.gate_proj", c.Intermediate, c.Hidden)
	add("mlp.up_proj", c.Intermediate, c.Hidden)
	add("mlp.down_proj", c.Hidden, c.Intermediate)
	return names, shapes
}

// targets lists the tensors of the layers in use under the file's names.
func (f *Files) targets() []weights.Target {
	prefix := f.Family.Prefixes[0]
	for _, p := range f.Family.Prefixes {
		if _, ok := f.set.Tensor(p + embedName); ok {
			prefix = p
			break
		}
	}
	var list []weights.Target
	add := func(name string, shape ...int) {
		list = append(list, weights.Target{Name: name, Shape: shape, Parts: []weights.Part{{Tensor: prefix + name}}})
	}
	add(embedName, f.Config.Vocab, f.Config.Hidden)
	names, shapes := f.layerShapes()
	for n := range f.Depth() {
		for _, name := range names {
			add(layerName(n, name), shapes[name]...)
		}
	}
	if f.normed() {
		add(finalNorm, f.Config.Hidden)
	}
	return list
}
