package device

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"longship/internal/safetensors"
	"longship/pipeline"
)

// parameters counts a model's parameters from the headers of its files: the
// transformer, or whatever weights the settings name where there is none. 0
// where there are none (a pipeline of cached parts).
func parameters(m pipeline.Model) (int64, error) {
	var total int64
	for _, at := range []pipeline.Path{m.Path, m.VAE, m.TextEncoder} {
		if at == "" {
			continue
		}
		n, err := countBelow(string(at))
		if err != nil {
			return 0, err
		}
		if at == m.Path {
			return n, nil
		}
		total += n
	}
	return total, nil
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
		return 0, fmt.Errorf("count the model's parameters: %w", err)
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
