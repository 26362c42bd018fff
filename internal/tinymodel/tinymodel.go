// Package tinymodel makes complete FLUX.2-shaped model folders of a few MB from
// a seed: random weights in the real layout and with the real arithmetic (one
// head of 128, four RoPE axes of 32), so that everything that a 32 B model goes
// through can be run on any machine without a download. The weights know
// nothing; what is trained on them shows the machinery and draws nothing.
//
// The autoencoder's statistics are measured on procedural pictures, so that its
// latents have mean 0 and variance 1 as the real ones have.
package tinymodel

import (
	"embed"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/safetensors"
)

// Kind is the model family that a folder imitates.
type Kind string

// The kinds: dev has a guidance embedder and a Mistral text tower, klein
// neither, and a Qwen text tower.
const (
	Dev   Kind = "dev"
	Klein Kind = "klein"
)

// Seed is the seed of the folders that the repository and its tests use.
const Seed = 1

//go:embed files
var files embed.FS

// Config returns the transformer's shape.
func Config(kind Kind) flux2.Config {
	c := flux2.Default()
	c.InChannels, c.OutChannels = 16, 16
	c.DoubleBlocks, c.SingleBlocks = 1, 2
	c.Heads = 1
	c.TextDim = 3 * 32
	c.Guidance = kind == Dev
	return c
}

// Write makes the model folder dir, an HF pipeline folder in bfloat16. The same
// kind and seed give the same bytes on every machine. Nothing may stand at dir.
func Write(dir string, kind Kind, seed uint64) error {
	if kind != Dev && kind != Klein {
		return fmt.Errorf("tiny model: kind %q is neither %q nor %q", kind, Dev, Klein)
	}
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("tiny model: %s exists already", dir)
	}
	for from, to := range map[string]string{
		"scheduler.json":                        "scheduler/scheduler_config.json",
		"vae.json":                              "vae/config.json",
		string(kind) + "/model_index.json":      "model_index.json",
		string(kind) + "/text_encoder.json":     "text_encoder/config.json",
		string(kind) + "/tokenizer.json":        "tokenizer/tokenizer.json",
		string(kind) + "/tokenizer_config.json": "tokenizer/tokenizer_config.json",
		string(kind) + "/chat_template.jinja":   "tokenizer/chat_template.jinja",
	} {
		b, err := files.ReadFile(path.Join("files", from))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, filepath.FromSlash(to)), b); err != nil {
			return err
		}
	}
	cfg := Config(kind)
	if err := write(filepath.Join(dir, "transformer", "config.json"), cfg.JSON()); err != nil {
		return err
	}
	if err := save(filepath.Join(dir, "transformer", "diffusion_pytorch_model.safetensors"), transformer(cfg, seed)); err != nil {
		return err
	}
	if err := save(filepath.Join(dir, "text_encoder", "model.safetensors"), tower(kind, seed)); err != nil {
		return err
	}
	return autoencoder(filepath.Join(dir, "vae"), seed)
}

func write(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, b, 0o644)
}

// weight is a tensor to be saved.
type weight struct {
	name  string
	data  []float32
	shape []int
}

// save writes the weights in bfloat16.
func save(path string, weights []weight) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var out []safetensors.Out
	for _, w := range weights {
		half := make([]uint16, len(w.data))
		dtype.F32ToBF16(half, w.data)
		out = append(out, safetensors.OutBytes(w.name, safetensors.BF16, dtype.Bytes(half), w.shape...))
	}
	if _, err := safetensors.Write(f, map[string]string{"format": "pt"}, out); err != nil {
		return err
	}
	return f.Close()
}
