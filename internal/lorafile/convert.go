package lorafile

import (
	"context"
	"fmt"
	"io"

	"longship/internal/safetensors"
)

// Convert writes the adapter at path in another layout. What it computes stays
// the same: pairs of parts are joined (ranks add up, or one shared A stays one),
// fused pairs are split by rows, alpha is kept where the layout's loaders read it
// and folded into B elsewhere. LoKr, LoHa and DoRA stay what they are in the
// layouts comfyui and kohya; with asLoRA a LoKr or LoHa is written as the LoRA
// that equals it.
func Convert(ctx context.Context, path string, o Output, asLoRA bool) error {
	return Merge(ctx, []Weighted{{Path: path, Weight: 1}}, o, asLoRA)
}

// Weighted is an adapter file with its share of a sum.
type Weighted struct {
	Path   string
	Weight float64
}

// Merge writes the weighted sum of adapters as one whose ranks are the sums of
// theirs: no product is rounded. asLoRA is as for Convert.
func Merge(ctx context.Context, from []Weighted, o Output, asLoRA bool) error {
	adapters, shares, err := openAll(from, o)
	defer closeAll(adapters)
	if err != nil {
		return err
	}
	var copies []safetensors.Out
	if len(adapters) == 1 && shares[0] == 1 && !asLoRA {
		if copies, err = o.keepKinds(adapters[0]); err != nil {
			return err
		}
	}
	for _, a := range adapters {
		for _, e := range a.entries {
			if e.kind != kindLoRA && !asLoRA {
				return fmt.Errorf("%s: %s is a %s, which %s; --as lora writes the LoRA that equals it", a.Path, e.name(), e.kind, o.whyNot(len(adapters)))
			}
		}
	}
	ts, err := targets(adapters, shares, o.fused())
	if err != nil {
		return err
	}
	var pairs []*written
	for _, t := range ts {
		pairs = append(pairs, o.plan(t))
	}
	return o.write(ctx, adapters[0].Metadata, pairs, copies)
}

func (o Output) whyNot(adapters int) string {
	switch {
	case adapters > 1:
		return "cannot be added to others as it is"
	case o.Layout == Diffusers:
		return "diffusers' loader of FLUX.2 does not read"
	case o.Layout == PEFT:
		return "is not written as a PEFT folder"
	}
	return "has another granularity there"
}

// openAll opens the inputs of a sum.
func openAll(from []Weighted, o Output) (adapters []*Adapter, shares []float64, err error) {
	var paths []string
	for _, w := range from {
		paths = append(paths, w.Path)
	}
	if err := o.check(paths...); err != nil {
		return nil, nil, err
	}
	for _, w := range from {
		a, err := Open(w.Path)
		if err != nil {
			return adapters, shares, err
		}
		adapters, shares = append(adapters, a), append(shares, w.Weight)
	}
	return adapters, shares, nil
}

func closeAll(adapters []*Adapter) {
	for _, a := range adapters {
		a.Close()
	}
}

// keepKinds takes the entries that the layout holds as they are out of the
// adapter, and returns their tensors under the layout's names.
func (o Output) keepKinds(a *Adapter) (copies []safetensors.Out, err error) {
	if !o.fused() {
		return nil, nil
	}
	var rest []*entry
	for _, e := range a.entries {
		if e.kind == kindLoRA || !e.whole() {
			rest = append(rest, e)
			continue
		}
		stem, alpha := o.stem(e.place), e.scale*float64(e.innerRank())
		for part, t := range e.t {
			if part == partAlpha {
				continue
			}
			name := stem + "." + part
			switch {
			case part == partA && o.Layout == Kohya:
				name = stem + ".lora_down.weight"
			case part == partB && o.Layout == Kohya:
				name = stem + ".lora_up.weight"
			case part == partA || part == partB:
				name = stem + ".lora_" + part + ".weight"
			}
			d := t.DType
			if want, err := ParseDType(o.DType); err == nil {
				d = want
			}
			copies = append(copies, safetensors.Out{Name: name, DType: d, Shape: t.Shape, Write: func(w io.Writer) error {
				if d == t.DType {
					_, err := io.CopyBuffer(w, io.NewSectionReader(t, 0, t.Bytes), make([]byte, 1<<16))
					return err
				}
				v, err := t.Float32()
				if err != nil {
					return err
				}
				return castTo(w, name, v, d)
			}})
		}
		copies = append(copies, safetensors.OutF32(stem+".alpha", []float32{float32(alpha)}))
	}
	a.entries = rest
	return copies, nil
}

// innerRank is what a loader divides alpha by.
func (e *entry) innerRank() int {
	for _, part := range []string{partB, "lokr_w1_a", "lokr_w2_a", "hada_w1_a"} {
		if t, ok := e.t[part]; ok {
			return t.Shape[1]
		}
	}
	return 1
}
