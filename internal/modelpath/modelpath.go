// Package modelpath finds the parts of a FLUX.2 model on disk, in the folder
// layout of Hugging Face or in BFL's single files. It looks and reads nothing;
// the functions may be called from any goroutine.
package modelpath

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"longship/pipeline"
)

// VAE returns the autoencoder: a folder with config.json and weights, or a
// safetensors file.
func VAE(m pipeline.Model) (string, error) {
	return find(m, "autoencoder", "vae", m.VAE, "vae", "ae.safetensors", "flux2-vae.safetensors")
}

// TextEncoder returns the folder of the text tower.
func TextEncoder(m pipeline.Model) (string, error) {
	return find(m, "text encoder", "text_encoder", m.TextEncoder, "text_encoder")
}

// Tokenizer returns the folder of tokenizer.json.
func Tokenizer(m pipeline.Model) (string, error) {
	return find(m, "tokenizer", "tokenizer", m.Tokenizer, "tokenizer")
}

// find returns the path that the config names, or the first candidate that
// exists in the model's folder, or in the folder that the model's file is in.
func find(m pipeline.Model, what, key string, named pipeline.Path, candidates ...string) (string, error) {
	if named != "" {
		if _, err := os.Stat(string(named)); err != nil {
			return "", fmt.Errorf("model.%s: %w", key, err)
		}
		return string(named), nil
	}
	if m.Path == "" {
		return "", fmt.Errorf("no %s: set model.path or model.%s", what, key)
	}
	base := string(m.Path)
	info, err := os.Stat(base)
	if err != nil {
		return "", fmt.Errorf("model.path: %w", err)
	}
	if !info.IsDir() {
		base = filepath.Dir(base)
	}
	for _, c := range candidates {
		at := filepath.Join(base, c)
		if _, err := os.Stat(at); err == nil {
			return at, nil
		}
	}
	return "", fmt.Errorf("no %s in %s (looked for %s): set model.%s", what, base, strings.Join(candidates, ", "), key)
}
