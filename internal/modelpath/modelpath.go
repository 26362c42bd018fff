// Package modelpath finds the parts of a FLUX.2 model on disk, in the folder
// layout of Hugging Face or in BFL's single files. It looks and reads nothing;
// the functions may be called from any goroutine. A part that is not there is a
// *pipeline.HeadError that says what was looked for, and where.
package modelpath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"longship/pipeline"
)

// Transformer returns the model's path, which weights.OpenTransformer takes: a
// folder or a single file.
func Transformer(m pipeline.Model) (string, error) {
	if m.Path == "" {
		return "", fault("path", errors.New("no transformer: name the folder of a FLUX.2 model, or a single file of its transformer"))
	}
	_, err := stat(m.Path)
	return string(m.Path), err
}

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
			return "", fault(key, err)
		}
		return string(named), nil
	}
	if m.Path == "" {
		return "", fault(key, fmt.Errorf("no %s: name it, or set model.path to a folder that holds it", what))
	}
	info, err := stat(m.Path)
	if err != nil {
		return "", err
	}
	base := string(m.Path)
	if !info.IsDir() {
		base = filepath.Dir(base)
	}
	for _, c := range candidates {
		at := filepath.Join(base, c)
		if _, err := os.Stat(at); err == nil {
			return at, nil
		}
	}
	return "", fault(key, fmt.Errorf("no %s in %s (looked for %s): name it", what, base, strings.Join(candidates, ", ")))
}

// stat looks at model.path.
func stat(path pipeline.Path) (os.FileInfo, error) {
	info, err := os.Stat(string(path))
	if err != nil {
		return nil, fault("path", fmt.Errorf("%w; it is to name the folder of a FLUX.2 model, or a single file of its transformer", err))
	}
	return info, nil
}

func fault(key string, err error) error {
	return &pipeline.HeadError{Path: "model." + key, Err: err}
}
