package lorafile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"longship/internal/safetensors"
)

// The kinds of adapter that files hold.
const (
	kindLoRA = "lora"
	kindDoRA = "dora"
	kindLoKr = "lokr"
	kindLoHa = "loha"
)

// Adapter is an open adapter file of which every tensor has its place in FLUX.2.
type Adapter struct {
	Path     string
	Layout   string // as Report has it
	Metadata map[string]string
	entries  []*entry // in the model's order
	file     *safetensors.File
}

// entry is what a file has for one place.
type entry struct {
	place
	kind    string
	t       parts
	rank    int // of the product; for LoKr and LoHa that of the exact low-rank form
	in, out int
	scale   float64 // what the product of the factors is multiplied by
}

// errPickle is about files that only Python's unpickler reads.
var errPickle = errors.New("a pickled PyTorch file (.pt, .ckpt, .bin): it can run any code when it is read, so it is refused; convert it to safetensors where you trust it")

// openTensors opens a safetensors file, or the file of a PEFT folder. A pickle
// is told from a damaged file.
func openTensors(path string) (*safetensors.File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		at := filepath.Join(path, peftWeights)
		if _, err := os.Stat(at); errors.Is(err, fs.ErrNotExist) {
			if _, err := os.Stat(filepath.Join(path, "adapter_model.bin")); err == nil {
				return nil, fmt.Errorf("%s: adapter_model.bin is %w", path, errPickle)
			}
			return nil, fmt.Errorf("%s: a folder without %s: name the adapter's file", path, peftWeights)
		}
		path = at
	}
	f, err := safetensors.Open(path)
	if err != nil && isPickle(path) {
		return nil, fmt.Errorf("%s: %w", path, errPickle)
	}
	return f, err
}

// isPickle knows PyTorch's files by their first bytes: a zip archive, or pickle protocol 2 and up.
func isPickle(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 4)
	if _, err := io.ReadFull(f, head); err != nil {
		return false
	}
	return bytes.HasPrefix(head, []byte("PK\x03\x04")) || head[0] == 0x80 && head[1] >= 2 && head[1] <= 5
}

// Open opens an adapter file of any layout, or a PEFT folder. A tensor that has
// no place in FLUX.2, half an adapter, shapes that do not fit each other or the
// model, and a file with no adapter are errors. Close it after use.
func Open(path string) (*Adapter, error) {
	f, err := openTensors(path)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Path: path, Metadata: f.Metadata, file: f}
	if err := a.bind(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// Close closes the file.
func (a *Adapter) Close() error { return a.file.Close() }

// bind finds the place of every tensor.
func (a *Adapter) bind() error {
	config, err := a.readConfig()
	if err != nil {
		return err
	}
	names := a.file.Names()
	double, single, err := blockCounts(names)
	if err != nil {
		return err
	}
	places := newPlaces(double, single)
	entries, layouts := map[string]*entry{}, map[string]bool{}
	var unknown []string
	for _, name := range names {
		stem, part := splitPart(name)
		at, ok := places.byName[stem]
		if part == "" || !ok {
			unknown = append(unknown, name)
			continue
		}
		layout, _ := splitLayout(stem)
		layouts[layout] = true
		e := entries[at.name()]
		if e == nil {
			e = &entry{place: at, t: parts{}}
			entries[at.name()] = e
		}
		if e.t[part].Name != "" {
			return fmt.Errorf("tensors %q and %q are both the %s of %s", e.t[part].Name, name, part, at.name())
		}
		e.t[part], _ = a.file.Tensor(name)
	}
	if err := refuseUnknown(names, unknown); err != nil {
		return err
	}
	a.Layout = strings.Join(slices.Sorted(maps.Keys(layouts)), ", ")
	a.entries = slices.SortedFunc(maps.Values(entries), func(x, y *entry) int {
		return cmp.Or(cmp.Compare(places.order[x.module], places.order[y.module]), cmp.Compare(x.part, y.part))
	})
	for _, e := range a.entries {
		if err := e.describe(config); err != nil {
			return fmt.Errorf("%s: %w", e.name(), err)
		}
	}
	return a.checkShapes()
}

// refuseUnknown says what to make of tensors without a place.
func refuseUnknown(all, unknown []string) error {
	switch {
	case len(all) == 0:
		return errors.New("there is no tensor in it")
	case len(unknown) == 0:
		return nil
	case len(unknown) == len(all):
		return fmt.Errorf("none of its %d tensors, such as %q, belongs to an adapter of FLUX.2", len(all), all[0])
	}
	why := ""
	if strings.HasPrefix(unknown[0], "text_encoder") || strings.HasPrefix(unknown[0], "lora_te") {
		why = " (it is the text encoder's; adapters of FLUX.2 are on the transformer)"
	}
	return fmt.Errorf("%d of its %d tensors, such as %q, belong to no adapter of FLUX.2%s", len(unknown), len(all), unknown[0], why)
}

const (
	peftWeights = "adapter_model.safetensors"
	peftConfigs = "adapter_config.json"
)

// loraConfig is what PEFT and diffusers say of an adapter beside its tensors.
type loraConfig struct {
	Type    string             `json:"peft_type"`
	Rank    float64            `json:"r"`
	Alpha   float64            `json:"lora_alpha"`
	LoKr    float64            `json:"alpha"` // PEFT's LoKr and LoHa call it so
	Pattern map[string]float64 `json:"alpha_pattern"`
	RSLoRA  bool               `json:"use_rslora"`
}

// readConfig reads adapter_config.json beside the file, or diffusers' metadata;
// the zero value where there is neither.
func (a *Adapter) readConfig() (c loraConfig, err error) {
	if filepath.Base(a.file.Path()) == peftWeights {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(a.file.Path()), peftConfigs))
		if errors.Is(err, fs.ErrNotExist) {
			return c, fmt.Errorf("%s is not beside %s: alpha is in it", peftConfigs, peftWeights)
		}
		if err != nil {
			return c, err
		}
		if err := json.Unmarshal(text, &c); err != nil {
			return c, fmt.Errorf("%s: %w", peftConfigs, err)
		}
		return c, nil
	}
	text := a.Metadata["lora_adapter_metadata"]
	if text == "" {
		return c, nil
	}
	prefixed := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(text), &prefixed); err != nil {
		return c, fmt.Errorf("lora_adapter_metadata: %w", err)
	}
	plain := map[string]json.RawMessage{}
	for k, v := range prefixed {
		if name, ok := strings.CutPrefix(k, "transformer."); ok {
			plain[name] = v
		}
	}
	whole, err := json.Marshal(plain)
	if err != nil {
		return c, fmt.Errorf("lora_adapter_metadata: %w", err)
	}
	if err := json.Unmarshal(whole, &c); err != nil {
		return c, fmt.Errorf("lora_adapter_metadata: %w", err)
	}
	return c, nil
}

// alpha returns the alpha that the config gives a module, false where it says none.
// Keys of the pattern are names or regular expressions for their end.
func (c loraConfig) alpha(module string) (float64, bool) {
	for _, key := range slices.Sorted(maps.Keys(c.Pattern)) {
		if key == module || strings.HasSuffix(module, "."+key) {
			return c.Pattern[key], true
		}
		if re, err := regexp.Compile(`^(?:.*\.)?(?:` + key + `)$`); err == nil && re.MatchString(module) {
			return c.Pattern[key], true
		}
	}
	alpha := c.Alpha
	if c.Type == "LOKR" || c.Type == "LOHA" {
		alpha = c.LoKr
	}
	return alpha, c.Rank > 0
}

// scaleOf returns alpha/rank: alpha from its tensor, else from the config, else
// equal to the rank.
func (e *entry) scaleOf(c loraConfig, rank int) (float64, error) {
	alpha := float64(rank)
	said, ok := c.alpha(e.configName())
	if t, has := e.t[partAlpha]; has {
		v, err := t.Float32()
		if err != nil {
			return 0, err
		}
		if len(v) != 1 {
			return 0, fmt.Errorf("alpha has shape %v, not one value", t.Shape)
		}
		alpha = float64(v[0])
	} else if ok {
		alpha = said
	}
	if math.IsNaN(alpha) || math.IsInf(alpha, 0) {
		return 0, fmt.Errorf("alpha is %v", alpha)
	}
	if ok && c.RSLoRA {
		return alpha / math.Sqrt(float64(rank)), nil
	}
	return alpha / float64(rank), nil
}

// configName is the name by which configs of PEFT and diffusers know the module.
func (e *entry) configName() string {
	if e.whole() && len(e.parts) > 1 {
		return e.module
	}
	return e.parts[max(e.part, 0)]
}

// describe checks an entry's tensors against each other and learns its kind,
// shape and scale.
func (e *entry) describe(c loraConfig) error {
	e.kind = e.t.kind()
	if e.kind == kindLoRA && e.t.has(partDoRA) {
		e.kind = kindDoRA
	}
	for part, t := range e.t {
		if !t.DType.IsFloat() {
			return fmt.Errorf("its %s is of type %s, no type for adapters", part, t.DType)
		}
		if part != partAlpha && t.Len() == 0 {
			return fmt.Errorf("its %s has no values: shape %v", part, t.Shape)
		}
	}
	switch e.kind {
	case kindLoRA, kindDoRA:
		return e.describeLoRA(c)
	case kindLoKr:
		return e.describeLoKr(c)
	case kindLoHa:
		return e.describeLoHa(c)
	case "full":
		return errors.New("it is a full difference (.diff), not an adapter of low rank; extract one from the two checkpoints instead")
	}
	return errors.New("its tensors make up no adapter that is known here")
}

func (e *entry) describeLoRA(c loraConfig) (err error) {
	a, b := e.t[partA], e.t[partB]
	if a.Name == "" || b.Name == "" {
		return errors.New("one half of the pair is missing")
	}
	if len(a.Shape) != 2 || len(b.Shape) != 2 || a.Shape[0] != b.Shape[1] {
		return fmt.Errorf("shapes %v of A and %v of B are no pair", a.Shape, b.Shape)
	}
	for part := range e.t {
		if !slices.Contains([]string{partA, partB, partAlpha, partDoRA}, part) {
			return fmt.Errorf("it has a pair, and %s beside it", part)
		}
	}
	e.rank, e.in, e.out = a.Shape[0], a.Shape[1], b.Shape[0]
	if m, ok := e.t[partDoRA]; ok && m.Len() != e.out {
		if m.Len() == e.in {
			return fmt.Errorf("its magnitudes %v are of the inputs; only those of the %d outputs are supported", m.Shape, e.out)
		}
		return fmt.Errorf("its magnitudes have shape %v, not one for each of %d outputs", m.Shape, e.out)
	}
	e.scale, err = e.scaleOf(c, e.rank)
	return err
}

// checkShapes compares the entries with FLUX.2: all its Linears in the blocks
// have shapes that follow from one width.
func (a *Adapter) checkShapes() error {
	width, by := 0, ""
	for _, e := range a.entries {
		if e.kind == kindLoRA || e.kind == kindDoRA || e.kind == kindLoKr || e.kind == kindLoHa {
			if w, ok := inputWidths[blockModule(e.module)]; ok && width == 0 {
				width, by = e.in/w, e.name()
				if width == 0 || e.in%w != 0 {
					return fmt.Errorf("%s: its input is %d wide, no multiple of %d as in FLUX.2", e.name(), e.in, w)
				}
			}
		}
	}
	for _, e := range a.entries {
		in, ok := inputWidths[blockModule(e.module)]
		if !ok {
			continue
		}
		out := outputWidths[blockModule(e.module)]
		if !e.whole() {
			out /= len(e.parts)
		}
		if e.in != in*width || e.out != out*width {
			if blockModule(e.module) == "linear1" && e.out == 7*width || blockModule(e.module) == "img_mlp.0" && e.out == 4*width {
				return fmt.Errorf("%s has shape [%d, %d]: it is an adapter of FLUX.1, not of FLUX.2", e.name(), e.out, e.in)
			}
			return fmt.Errorf("%s has shape [%d, %d], but a FLUX.2 whose %s is so wide has [%d, %d] there: another base", e.name(), e.out, e.in, by, out*width, in*width)
		}
	}
	return nil
}

// inputWidths and outputWidths are the shapes of the Linears in the blocks, in
// widths of the model (its feed-forward is three wide and gated).
var (
	inputWidths = map[string]int{"img_attn.qkv": 1, "txt_attn.qkv": 1, "img_attn.proj": 1, "txt_attn.proj": 1,
		"img_mlp.0": 1, "txt_mlp.0": 1, "img_mlp.2": 3, "txt_mlp.2": 3, "linear1": 1, "linear2": 4}
	outputWidths = map[string]int{"img_attn.qkv": 3, "txt_attn.qkv": 3, "img_attn.proj": 1, "txt_attn.proj": 1,
		"img_mlp.0": 6, "txt_mlp.0": 6, "img_mlp.2": 1, "txt_mlp.2": 1, "linear1": 9, "linear2": 1}
)

// blockModule returns a canonical name without its block: "img_attn.qkv".
func blockModule(module string) string {
	if kind, rest, ok := strings.Cut(module, "."); ok && strings.HasSuffix(kind, "_blocks") {
		_, name, _ := strings.Cut(rest, ".")
		return name
	}
	return module
}
