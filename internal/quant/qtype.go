package quant

import (
	"fmt"
	"slices"
	"strings"

	"longship/gpu/memory"
	"longship/gpu/tensor"
	"longship/internal/safetensors"
	"longship/internal/weights"
)

// QTypes are the ways to store linear weights, by their names in configs.
var QTypes = []string{"bf8", "float8", "int8", "bf16", "float32"}

// Storage returns the element type of a qtype, and whether rows have scales.
func Storage(qtype string) (dt tensor.DType, scaled bool, err error) {
	switch qtype {
	case "bf8":
		return tensor.E5M2, true, nil
	case "float8":
		return tensor.E4M3, true, nil
	case "int8":
		return tensor.I8, true, nil
	case "bf16":
		return tensor.BF16, false, nil
	case "float32":
		return tensor.F32, false, nil
	}
	return 0, false, fmt.Errorf("qtype %q is none of %s", qtype, strings.Join(QTypes, ", "))
}

// normStorage returns the type that a norm is kept in without loss.
func normStorage(w weights.Weight) tensor.DType {
	if w.DType() == safetensors.BF16 && !w.Scaled() {
		return tensor.BF16
	}
	return tensor.F32
}

// Place adds a weight to the end of a unit, its scales behind it; both begin at
// multiples of tensor.Align.
func Place(u *memory.Unit, name string, dt tensor.DType, scaled bool, shape ...int) {
	e := memory.Entry{Name: name, DType: dt, Shape: slices.Clone(shape), Off: u.Bytes, Scale: -1}
	u.Bytes += align(tensor.New(nil, 0, dt, shape...).Bytes(), tensor.Align)
	if scaled {
		e.Scale = u.Bytes
		u.Bytes += align(4*int64(shape[0]), tensor.Align)
	}
	u.Entries = append(u.Entries, e)
}

func align(n, to int64) int64 { return (n + to - 1) / to * to }
