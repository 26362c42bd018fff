package device

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"longship/internal/modelpath"
	"longship/internal/safetensors"
	"longship/pipeline"
)

// parameters counts a model's parameters from the headers of its files: the
// transformer, or whatever weights the settings name where there is none. 0
// where there are none (a pipeline of cached parts).
func parameters(m pipeline.Model) (int64, error) {
	if m.Path != "" {
		return countPart(m, modelpath.Transformer, "model.path")
	}
	var total int64
	if m.VAE != "" {
		n, err := countPart(m, modelpath.VAE, "model.vae")
		if err != nil {
			return 0, err
		}
		total += n
	}
	if m.TextEncoder != "" {
		n, err := countPart(m, modelpath.TextEncoder, "model.text_encoder")
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// countPart counts the parameters of the part that find finds. Its error is a
// *pipeline.HeadError, that of the stage which needs the part where it is missing.
func countPart(m pipeline.Model, find func(pipeline.Model) (string, error), key string) (int64, error) {
	path, err := find(m)
	if err != nil {
		return 0, err
	}
	n, err := countBelow(path)
	if err != nil {
		return 0, fault(key, "count the parameters: %w", err)
	}
	return n, nil
}

// countBelow counts the elements of a safetensors file, or of the largest
// folder of safetensors files at or directly below a path: an HF folder holds
// the same transformer perhaps twice, as a folder and as a single file.
func countBelow(path string) (int64, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return 0, err
	}
	folders := map[string]int64{}
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel, err := filepath.Rel(path, p); err == nil && strings.Count(rel, string(filepath.Separator)) > 0 {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(p) != ".safetensors" {
			return nil
		}
		n, err := count(p)
		if err != nil {
			return err
		}
		where := filepath.Dir(p)
		if where == path {
			where = p // single files beside each other are alternatives
		}
		folders[where] += n
		return nil
	})
	if err != nil {
		return 0, err
	}
	var most int64
	for _, n := range folders {
		most = max(most, n)
	}
	return most, nil
}

func count(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	h, err := safetensors.ReadHeader(f, info.Size())
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	var n int64
	for _, t := range h.Tensors {
		n += int64(t.Len())
	}
	return n, nil
}
