package lorafile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"longship/cache/atomicfile"
	"longship/internal/dtype"
	"longship/internal/safetensors"
)

// The further layouts that Convert, Resize and Merge write.
const (
	Kohya = "kohya" // flat names of BFL's modules, alpha in a tensor
	PEFT  = "peft"  // a folder of PEFT, diffusers' modules, alpha in adapter_config.json
)

// AllLayouts lists the layouts that Convert, Resize and Merge write.
var AllLayouts = []string{ComfyUI, Diffusers, Kohya, PEFT}

// Output says where and how a LoRA is written.
type Output struct {
	Path   string
	Layout string // one of AllLayouts
	DType  string // "" keeps the source's type; see ParseDType
	Force  bool   // replace a file that is there, but never an input
}

// fused says whether the layout knows q, k and v as one module.
func (o Output) fused() bool { return o.Layout == ComfyUI || o.Layout == Kohya }

// keepsAlpha says whether every loader of the layout reads alpha, so that B can
// stay as it is. ComfyUI reads a tensor that diffusers refuses, diffusers reads
// metadata that ComfyUI ignores: in their layouts the scale is folded into B.
func (o Output) keepsAlpha() bool { return o.Layout == Kohya || o.Layout == PEFT }

// check refuses what cannot be written there, before work is done.
func (o Output) check(inputs ...string) error {
	known := false
	for _, l := range AllLayouts {
		known = known || l == o.Layout
	}
	if !known {
		return fmt.Errorf("layout %q is none of %s", o.Layout, strings.Join(AllLayouts, ", "))
	}
	if o.DType != "" {
		if _, err := ParseDType(o.DType); err != nil {
			return err
		}
	}
	isFile := strings.HasSuffix(o.Path, ".safetensors")
	if o.Layout == PEFT && isFile {
		return fmt.Errorf("%s: PEFT loads a folder (%s and %s): name a folder", o.Path, peftWeights, peftConfigs)
	}
	if o.Layout != PEFT && !isFile {
		return fmt.Errorf("%s: the file's name must end in .safetensors", o.Path)
	}
	there, err := os.Stat(o.Path)
	if err != nil {
		return nil
	}
	for _, in := range inputs {
		if info, err := os.Stat(in); err == nil && os.SameFile(info, there) {
			return fmt.Errorf("%s is an input: name another output", o.Path)
		}
	}
	if o.Layout == PEFT {
		return fmt.Errorf("%s is there already: name another folder", o.Path)
	}
	if !o.Force {
		return fmt.Errorf("%s is there already: name another file, or say --force", o.Path)
	}
	return nil
}

// written is a pair in its final form: what its tensors are called and how they are made.
type written struct {
	at    place
	rank  int
	in    int
	out   int
	alpha float64
	dtype safetensors.DType
	load  func() (a, b matrix, err error)
}

// plan turns a target into what is written.
func (o Output) plan(t *target) *written {
	scale, common := t.scale()
	fold := !o.keepsAlpha() || !common
	w := &written{at: t.at, rank: t.rank(), in: t.in, out: t.hi - t.lo, dtype: t.dtype, alpha: float64(t.rank())}
	if !fold {
		w.alpha = scale * float64(w.rank)
	}
	w.load = func() (matrix, matrix, error) { return t.pair(fold) }
	return w
}

// stem is the module's name in the layout, without what follows it.
func (o Output) stem(at place) string {
	switch o.Layout {
	case ComfyUI:
		return "diffusion_model." + at.module
	case Kohya:
		return "lora_unet_" + strings.ReplaceAll(at.module, ".", "_")
	case Diffusers:
		return "transformer." + at.parts[max(at.part, 0)]
	}
	return "base_model.model." + at.parts[max(at.part, 0)]
}

// swaps says whether the module's rows are the other way round in the layout.
func (o Output) swaps(at place) bool {
	return !o.fused() && at.module == "final_layer.adaLN_modulation.1"
}

// write writes the pairs; copies are tensors that go over as they are.
func (o Output) write(ctx context.Context, meta map[string]string, pairs []*written, copies []safetensors.Out) error {
	if len(pairs)+len(copies) == 0 {
		return errors.New("there is nothing to write")
	}
	want, _ := ParseDType(o.DType)
	down, up := ".lora_A.weight", ".lora_B.weight"
	if o.Layout == Kohya {
		down, up = ".lora_down.weight", ".lora_up.weight"
	}
	outs := copies
	held := &holder{}
	for _, p := range pairs {
		stem, d := o.stem(p.at), p.dtype
		if want != "" {
			d = want
		}
		swap := o.swaps(p.at)
		emit := func(name string, isA bool, rows, cols int) {
			outs = append(outs, safetensors.Out{Name: name, DType: d, Shape: []int{rows, cols}, Write: func(w io.Writer) error {
				if err := ctx.Err(); err != nil {
					return err
				}
				a, b, err := held.of(p)
				if err != nil {
					return err
				}
				if isA {
					return castTo(w, name, a.v, d)
				}
				if swap {
					half := b.rows / 2 * b.cols
					if err := castTo(w, name, b.v[half:], d); err != nil {
						return err
					}
					return castTo(w, name, b.v[:half], d)
				}
				return castTo(w, name, b.v, d)
			}})
		}
		emit(stem+down, true, p.rank, p.in)
		emit(stem+up, false, p.out, p.rank)
		if o.Layout == Kohya {
			outs = append(outs, safetensors.OutF32(stem+".alpha", []float32{float32(p.alpha)}))
		}
	}
	meta = o.metadata(meta, pairs)
	if o.Layout != PEFT {
		return atomicfile.Write(o.Path, func(f *os.File) error { return writeHashed(f, meta, outs) })
	}
	return o.writeFolder(meta, pairs, outs)
}

func writeHashed(f *os.File, meta map[string]string, outs []safetensors.Out) error {
	d := newDigester(f)
	if _, err := safetensors.Write(d, meta, outs); err != nil {
		return err
	}
	_, err := d.finish(f)
	return err
}

// writeFolder writes a PEFT folder beside its name and renames it.
func (o Output) writeFolder(meta map[string]string, pairs []*written, outs []safetensors.Out) (err error) {
	dir := strings.TrimRight(o.Path, `/\`)
	partial := dir + atomicfile.Partial
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	err = atomicfile.Write(filepath.Join(partial, peftWeights), func(f *os.File) error { return writeHashed(f, meta, outs) })
	if err != nil {
		return err
	}
	config, err := json.MarshalIndent(o.config(pairs), "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.WriteBytes(filepath.Join(partial, peftConfigs), append(config, '\n')); err != nil {
		return err
	}
	if err := os.Rename(partial, dir); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(dir))
}

// config is the LoraConfig of PEFT: rank and alpha of the first pair, and
// patterns for those that differ.
func (o Output) config(pairs []*written) map[string]any {
	rank, alpha := pairs[0].rank, pairs[0].alpha
	ranks, alphas, names := map[string]int{}, map[string]float64{}, []string{}
	for _, p := range pairs {
		name := p.at.parts[max(p.at.part, 0)]
		names = append(names, name)
		if p.rank != rank {
			ranks[name] = p.rank
		}
		if p.alpha != alpha {
			alphas[name] = p.alpha
		}
	}
	return map[string]any{"peft_type": "LORA", "task_type": nil, "base_model_name_or_path": nil,
		"r": rank, "lora_alpha": alpha, "lora_dropout": 0.0, "bias": "none", "target_modules": names,
		"rank_pattern": ranks, "alpha_pattern": alphas, "init_lora_weights": true, "inference_mode": true,
		"use_dora": false, "use_rslora": false, "lora_bias": false}
}

// metadata keeps what the source said of its training, and says rank and alpha anew.
func (o Output) metadata(from map[string]string, pairs []*written) map[string]string {
	meta := maps.Clone(from)
	if meta == nil {
		meta = map[string]string{}
	}
	delete(meta, "lora_adapter_metadata")
	meta["format"], meta[modelHashKey], meta[legacyHashKey] = "pt", modelHashBlank, legacyHashBlank
	if len(pairs) > 0 {
		rank, alpha := 0, 0.0
		var modules []ranked
		for _, p := range pairs {
			if p.rank > rank {
				rank, alpha = p.rank, p.alpha
			}
			modules = append(modules, ranked{p.at.parts[max(p.at.part, 0)], p.rank})
		}
		meta["ss_network_dim"] = strconv.Itoa(rank)
		meta["ss_network_alpha"] = strconv.FormatFloat(alpha, 'g', -1, 64)
		if o.Layout == Diffusers {
			meta["lora_adapter_metadata"] = peftMetadata(modules)
		}
	}
	return meta
}

// holder keeps the pair that was made last: its A and B are asked for apart.
type holder struct {
	p    *written
	a, b matrix
}

func (h *holder) of(p *written) (a, b matrix, err error) {
	if h.p != p {
		h.p = nil
		if h.a, h.b, err = p.load(); err != nil {
			return a, b, err
		}
		h.p = p
	}
	return h.a, h.b, nil
}

// castTo writes values in a type, rounded to nearest. One that the type cannot
// hold is an error.
func castTo(w io.Writer, name string, values []float32, d safetensors.DType) error {
	const piece = 1 << 16
	narrow := make([]uint16, min(piece, len(values)))
	for lo := 0; lo < len(values); lo += piece {
		v := values[lo:min(lo+piece, len(values))]
		for _, x := range v {
			if x-x != 0 || d == safetensors.F16 && math.Abs(float64(x)) >= maxF16 {
				return fmt.Errorf("%s has the value %v, which %s cannot hold", name, x, d)
			}
		}
		raw := dtype.Bytes(v)
		switch d {
		case safetensors.BF16:
			dtype.F32ToBF16(narrow[:len(v)], v)
			raw = dtype.Bytes(narrow[:len(v)])
		case safetensors.F16:
			dtype.F32ToF16(narrow[:len(v)], v)
			raw = dtype.Bytes(narrow[:len(v)])
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	return nil
}
