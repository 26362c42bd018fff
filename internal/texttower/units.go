package texttower

import (
	"fmt"
	"strings"

	"longship/gpu/memory"
	"longship/gpu/tensor"
	"longship/internal/quant"
	"longship/internal/safetensors"
	"longship/internal/weights"
)

// weightSet describes the tower's layers as units, one a layer, which are made
// from the files when they are loaded. The final norm is the outer unit.
func (f *Files) weightSet(qtype string) (*memory.WeightSet, error) {
	set := &memory.WeightSet{QType: qtype, Outer: memory.Unit{Name: "outer", Block: -1}, Fill: f.fill}
	if f.normed() {
		quant.Place(&set.Outer, finalNorm, tensor.F32, false, f.Config.Hidden)
	}
	for n := range f.Depth() {
		u, err := f.layerUnit(n, qtype)
		if err != nil {
			return nil, err
		}
		set.Units = append(set.Units, u)
	}
	return set, nil
}

// layerUnit lays out one layer: norms in f32, linear weights in qtype.
func (f *Files) layerUnit(n int, qtype string) (memory.Unit, error) {
	u := memory.Unit{Name: fmt.Sprintf("layer %d", n), Block: n}
	names, shapes := f.layerShapes()
	for _, short := range names {
		name := layerName(n, short)
		dt, scaled := tensor.F32, false
		if !strings.Contains(short, "norm") {
			var err error
			if dt, scaled, err = storage(qtype, f.bound.Weight(name)); err != nil {
				return u, err
			}
		}
		quant.Place(&u, name, dt, scaled, shapes[short]...)
	}
	return u, nil
}

// storage returns the type that a linear weight is held in. qtype none keeps
// what the file has: bfloat16, or float32 for every other type.
func storage(qtype string, w weights.Weight) (dt tensor.DType, scaled bool, err error) {
	switch {
	case qtype != "none":
		return quant.Storage(qtype)
	case w.DType() == safetensors.BF16 && !w.Scaled():
		return tensor.BF16, false, nil
	}
	return tensor.F32, false, nil
}
