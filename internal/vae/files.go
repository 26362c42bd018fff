package vae

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"longship/internal/safetensors"
	"longship/internal/weights"
)

// Files is an autoencoder on disk: its configuration, and handles of its
// weights, whose names and shapes have been checked. Close it when they are loaded.
type Files struct {
	Config  Config
	Weights []string // paths of the safetensors files

	set   *safetensors.Set
	bound *weights.Bound
}

// Open finds the autoencoder at path, a Hugging Face folder or a safetensors
// file in diffusers' or BFL's naming, f32 or bf16. The configuration is the
// folder's config.json; for a file, vae/config.json or config.json beside it,
// else that of the published model. It reads headers only, and returns all
// that is missing or of a wrong shape in one error.
func Open(path string) (*Files, error) {
	config, err := findConfig(path)
	if err != nil {
		return nil, err
	}
	set, err := safetensors.Load(path)
	if err != nil {
		return nil, fmt.Errorf("autoencoder: %w", err)
	}
	bound, err := weights.Bind(set, targets(config, set), func(name string) bool { return name == "bn.num_batches_tracked" })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("autoencoder: %w", err), set.Close())
	}
	return &Files{Config: config, Weights: set.Files(), set: set, bound: bound}, nil
}

// findConfig reads the config that belongs to the weights at path.
func findConfig(path string) (Config, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Config{}, fmt.Errorf("autoencoder: %w", err)
	}
	if info.IsDir() {
		return readConfig(filepath.Join(path, "config.json"))
	}
	dir := filepath.Dir(path)
	for _, at := range []string{filepath.Join(dir, "vae", "config.json"), filepath.Join(dir, "config.json")} {
		if text, err := os.ReadFile(at); err == nil && isVAEConfig(text) {
			return readConfig(at)
		}
	}
	c := DefaultConfig()
	return c, c.validate()
}

func readConfig(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, fmt.Errorf("autoencoder: no config.json in %s: name the safetensors file if the folder has none: %w", filepath.Dir(path), err)
	}
	if err != nil {
		return Config{}, fmt.Errorf("autoencoder: %w", err)
	}
	c, err := ParseConfig(text)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// targets lists the model's tensors under the names of the set's layout.
func targets(c Config, set *safetensors.Set) []weights.Target {
	want := c.tensors()
	_, bfl := set.Tensor("encoder.down.0.block.0.conv1.weight")
	list := make([]weights.Target, len(want.names))
	for i, name := range want.names {
		list[i] = weights.Target{Name: name, Shape: want.dims[name]}
		if bfl {
			list[i].Parts = []weights.Part{{Tensor: bflName(name, len(c.Channels))}}
		}
	}
	return list
}

// Close closes the files. Calling it twice is allowed.
func (f *Files) Close() error {
	if f.set == nil {
		return nil
	}
	set := f.set
	f.set = nil
	return set.Close()
}
