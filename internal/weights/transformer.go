package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"longship/internal/flux2"
	"longship/internal/safetensors"
)

// Transformer is an open FLUX.2 transformer.
type Transformer struct {
	Config flux2.Config
	Layout Layout
	Set    *safetensors.Set
	*Bound // by canonical names
}

// OpenTransformer opens the transformer at path: a folder of Hugging Face's
// layout or its transformer folder, a single file of BFL's or ComfyUI's, or a
// folder with one of those. The config is the one that belongs to the weights;
// for a single file without one it is worked out from the shapes. All that is
// missing, misshapen or unknown is in the error. Close it after use.
func OpenTransformer(path string) (*Transformer, error) {
	at, err := findTransformer(path)
	if err != nil {
		return nil, err
	}
	set, err := safetensors.Load(at)
	if err != nil {
		return nil, err
	}
	t := &Transformer{Set: set}
	if err := t.bind(at); err != nil {
		set.Close()
		return nil, err
	}
	return t, nil
}

// TransformerConfig returns the config of the transformer at path, whose headers
// it looks at as OpenTransformer does.
func TransformerConfig(path string) (flux2.Config, error) {
	t, err := OpenTransformer(path)
	if err != nil {
		return flux2.Config{}, err
	}
	return t.Config, t.Close()
}

func (t *Transformer) bind(at string) error {
	var ok bool
	if t.Layout, ok = DetectLayout(t.Set); !ok {
		return fmt.Errorf("%s holds no FLUX.2 transformer: neither %s nor %s is in it", at, bflProbe, diffusersProbe)
	}
	config, err := readConfig(at)
	switch {
	case err != nil:
		return err
	case config != nil:
		t.Config = *config
	default:
		if t.Config, err = t.Layout.infer(t.shapes()); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	t.Bound, err = Bind(t.Set, t.Layout.Targets(t.Config), t.Layout.foreign)
	return err
}

// shapes returns the shapes in the file by their names in it.
func (t *Transformer) shapes() map[string][]int {
	shapes := map[string][]int{}
	for _, name := range t.Set.Names() {
		x, _ := t.Set.Tensor(name)
		shapes[name] = x.Shape
	}
	return shapes
}

// infer works the config out from the shapes in a file of this layout.
func (l Layout) infer(shapes map[string][]int) (flux2.Config, error) {
	ours := map[string][]int{}
	for name, shape := range shapes {
		name = strings.TrimPrefix(name, l.Prefix)
		if l.Diffusers {
			name = canonical(name)
		}
		ours[name] = shape
	}
	return flux2.Infer(ours)
}

// canonical returns our name for a tensor of the diffusers layout that makes up
// a weight alone, or the name itself.
func canonical(name string) string {
	for ours, theirs := range outerNames {
		if theirs == name {
			return ours
		}
	}
	for kind, folder := range blockFolders {
		rest, ok := strings.CutPrefix(name, folder+".")
		if !ok {
			continue
		}
		number, inner, _ := strings.Cut(rest, ".")
		for ours, theirs := range blockNames[kind] {
			if len(theirs) == 1 && theirs[0] == inner {
				return kind + "." + number + "." + ours
			}
		}
	}
	return name
}

// Close closes the files.
func (t *Transformer) Close() error { return t.Set.Close() }

const transformerFolder = "transformer"

// findTransformer returns the file or folder that holds the transformer's weights.
func findTransformer(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("model: %w", err)
	}
	if !info.IsDir() {
		return path, nil
	}
	sub := filepath.Join(path, transformerFolder)
	if info, err := os.Stat(sub); err == nil && info.IsDir() {
		return sub, nil
	}
	if c, err := parseConfigFile(filepath.Join(path, "config.json")); c != nil || err != nil {
		return path, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", err
	}
	var found []string
	var broken error
	for _, e := range entries {
		f := filepath.Join(path, e.Name())
		if filepath.Ext(f) != ".safetensors" {
			continue
		}
		set, err := safetensors.Load(f)
		if err != nil {
			broken = errors.Join(broken, err)
			continue
		}
		if _, ok := DetectLayout(set); ok {
			found = append(found, f)
		}
		set.Close()
	}
	switch len(found) {
	case 0:
		none := fmt.Errorf("no FLUX.2 transformer in %s: neither a folder %q nor a single file", path, transformerFolder)
		return "", errors.Join(none, broken)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("%s holds several transformers (%s): name the file in model.path", path, strings.Join(found, ", "))
}

// readConfig returns the config of the weights at path: that in their folder,
// or, for a single file, beside it or in the transformer folder beside it. It
// is nil where there is none.
func readConfig(path string) (*flux2.Config, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		at := filepath.Join(path, "config.json")
		data, err := os.ReadFile(at)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		c, err := flux2.ParseConfig(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		return &c, nil
	}
	for _, at := range []string{"config.json", filepath.Join(transformerFolder, "config.json")} {
		if c, err := parseConfigFile(filepath.Join(filepath.Dir(path), at)); c != nil || err != nil {
			return c, err
		}
	}
	return nil, nil
}

// parseConfigFile reads a config.json if it is there and a FLUX.2
// transformer's; it is nil otherwise.
func parseConfigFile(path string) (*flux2.Config, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var class struct {
		Name string `json:"_class_name"`
	}
	if json.Unmarshal(data, &class) != nil || class.Name != "Flux2Transformer2DModel" {
		return nil, nil
	}
	c, err := flux2.ParseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &c, nil
}
