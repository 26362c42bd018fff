package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Set is a model's tensors, in one file or in shards. All files are open and
// their headers checked, so that what is missing or cut is known before work starts.
type Set struct {
	path  string
	files []*File
	where map[string]*File
}

// Load opens the model at path: a safetensors file, or a folder that holds one
// model, whole or sharded, as transformers and diffusers write it
// ("model.safetensors", "diffusion_pytorch_model-00001-of-00007.safetensors"
// with its index, names with a variant like ".fp16."). Where a folder holds the
// model several times the plain name is taken, before variants. Every missing or
// broken file is named.
func Load(path string) (*Set, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return load(path, []string{path}, nil)
	}
	names, err := listWeights(path)
	if err != nil {
		return nil, err
	}
	layout, err := choose(path, names)
	if err != nil {
		return nil, err
	}
	if layout.index == "" {
		return load(path, layout.files, nil)
	}
	weights, err := readIndex(layout.index)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, shard := range slices.Sorted(maps.Values(weights)) {
		if at := filepath.Join(path, shard); !slices.Contains(files, at) {
			files = append(files, at)
		}
	}
	return load(path, files, weights)
}

// load opens the files. weights says which file each tensor is in, nil where
// the files alone say it.
func load(path string, files []string, weights map[string]string) (*Set, error) {
	s := &Set{path: path, where: map[string]*File{}}
	var errs []error
	for _, at := range files {
		f, err := Open(at)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("shard %s of %s is missing: %w", filepath.Base(at), path, fs.ErrNotExist)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.files = append(s.files, f)
		for _, t := range f.Tensors {
			if other := s.where[t.Name]; other != nil && weights == nil {
				errs = append(errs, fmt.Errorf("tensor %q is in %s and in %s", t.Name, other.path, at))
			}
			if weights == nil || weights[t.Name] == filepath.Base(at) {
				s.where[t.Name] = f
			}
		}
	}
	if len(errs) == 0 {
		for _, name := range slices.Sorted(maps.Keys(weights)) {
			if s.where[name] == nil {
				errs = append(errs, fmt.Errorf("tensor %q is not in %s, where the index of %s says it is", name, weights[name], path))
			}
		}
	}
	if len(errs) > 0 {
		s.Close()
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// Path returns the path that the set was loaded from.
func (s *Set) Path() string { return s.path }

// Files returns the paths of the files, sorted.
func (s *Set) Files() []string {
	paths := make([]string, len(s.files))
	for i, f := range s.files {
		paths[i] = f.path
	}
	return paths
}

// Names returns the names of the tensors, sorted.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.where)) }

// Tensor returns the tensor of that name.
func (s *Set) Tensor(name string) (Tensor, bool) {
	f, ok := s.where[name]
	if !ok {
		return Tensor{}, false
	}
	return f.Tensor(name)
}

// Close closes the files.
func (s *Set) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// listWeights returns the names of the safetensors files and indexes in a folder.
func listWeights(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.Contains(e.Name(), ".safetensors") && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// layout is one way in which a folder holds a model.
type layout struct {
	name  string   // the file's name, or the index's or shards' name without its numbers
	index string   // path of the index; "" without
	files []string // paths, where there is no index
}

var (
	indexName = regexp.MustCompile(`^(.+)\.safetensors\.index(\.[^.]+)?\.json$`)
	shardName = regexp.MustCompile(`^(.+)-(\d{5})-of-(\d{5})((?:\.[^.]+)?\.safetensors)$`)
)

// choose finds the model among a folder's files.
func choose(dir string, names []string) (layout, error) {
	var found []layout
	add := func(l layout) {
		if !slices.ContainsFunc(found, func(f layout) bool { return f.name == l.name }) {
			found = append(found, l)
		}
	}
	for _, n := range names {
		if m := indexName.FindStringSubmatch(n); m != nil {
			add(layout{name: m[1] + m[2] + ".safetensors", index: filepath.Join(dir, n)})
		}
	}
	for _, n := range names {
		switch m := shardName.FindStringSubmatch(n); {
		case m != nil:
			l := layout{name: m[1] + m[4]}
			count, _ := strconv.Atoi(m[3])
			if count > maxShards {
				return layout{}, fmt.Errorf("%s: %d shards are too many", filepath.Join(dir, n), count)
			}
			for i := range count {
				l.files = append(l.files, filepath.Join(dir, fmt.Sprintf("%s-%05d-of-%s%s", m[1], i+1, m[3], m[4])))
			}
			add(l)
		case strings.HasSuffix(n, ".safetensors"):
			add(layout{name: n, files: []string{filepath.Join(dir, n)}})
		}
	}
	if len(found) == 0 {
		return layout{}, fmt.Errorf("no safetensors file in %s", dir)
	}
	for _, plain := range []string{"diffusion_pytorch_model.safetensors", "model.safetensors"} {
		for _, l := range found {
			if l.name == plain {
				return l, nil
			}
		}
	}
	if len(found) > 1 {
		var have []string
		for _, l := range found {
			have = append(have, l.name)
		}
		return layout{}, fmt.Errorf("%s holds several models (%s): name the file instead of the folder", dir, strings.Join(have, ", "))
	}
	return found[0], nil
}

// maxShards bounds what a file name can make us look for.
const maxShards = 10_000

// readIndex reads a shard index and returns the file of every tensor.
func readIndex(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	weights, err := parseIndex(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return weights, nil
}

func parseIndex(text []byte) (map[string]string, error) {
	var index struct {
		Weights map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("no shard index: %w", err)
	}
	if len(index.Weights) == 0 {
		return nil, errors.New("no shard index: weight_map is missing or empty")
	}
	for name, file := range index.Weights {
		if file == "" || file != filepath.Base(file) || strings.ContainsAny(file, `/\`) || file == ".." {
			return nil, fmt.Errorf("tensor %q: shard %q is no file name", name, file)
		}
	}
	return index.Weights, nil
}
