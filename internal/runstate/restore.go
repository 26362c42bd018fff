package runstate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/safetensors"
	"longship/stages/port"
)

// Restore puts a checkpoint into a state that has been laid out for the same
// run: step, counters, and the bytes of every tensor. Values that the run keeps
// in another type, float32 for bfloat16 or the reverse, are rounded to the nearest.
// A moving average that is new in this run starts from the values; one that is no
// longer kept is left. A tensor that is missing or of another type or shape is an
// error.
func (c *Checkpoint) Restore(ctx context.Context, st *port.State) error {
	file, err := safetensors.Open(c.StatePath)
	if err != nil {
		return fmt.Errorf("restore step %d: %w", c.Step, err)
	}
	defer file.Close()
	var scratch []byte
	for _, p := range st.Params {
		value := p.Name() + "/value"
		if err := fill(ctx, file, value, st.Memory, p.Value, &scratch); err != nil {
			return err
		}
		if p.EMA.Valid() {
			name := p.Name() + "/ema"
			if _, ok := file.Tensor(name); !ok {
				name = value
			}
			if err := fill(ctx, file, name, st.Memory, p.EMA, &scratch); err != nil {
				return err
			}
		}
		for _, key := range slices.Sorted(maps.Keys(p.Optimizer)) {
			if err := fill(ctx, file, p.Name()+"/"+key, st.Memory, p.Optimizer[key], &scratch); err != nil {
				return err
			}
		}
	}
	st.Step = c.Step
	st.Counters = maps.Clone(c.Counters)
	return nil
}

// fill reads a tensor of the file into t.
func fill(ctx context.Context, file *safetensors.File, name string, m port.Memory, t tensor.Tensor, scratch *[]byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	from, ok := file.Tensor(name)
	if !ok {
		return fmt.Errorf("%s: tensor %q is missing: the checkpoint is of another adapter or optimiser", file.Path(), name)
	}
	want := fileTypes[t.DType]
	if !(from.DType == want || isValue(from.DType) && isValue(want)) || !slices.Equal(from.Shape, t.Shape) {
		return from.Errorf("it is %s%v, the run has %s%v", from.DType, from.Shape, want, t.Shape)
	}
	var raw []byte
	if m == nil {
		raw = t.Region().Bytes()
	} else {
		*scratch = slices.Grow((*scratch)[:0], int(t.Bytes()))[:t.Bytes()]
		raw = *scratch
	}
	var err error
	if from.DType == want {
		_, err = from.ReadAt(raw, 0)
	} else {
		err = readAs(want, from, raw)
	}
	if err != nil || m == nil {
		return err
	}
	return m.Write(ctx, t, raw)
}

// isValue says whether parameters and averages may have a type.
func isValue(dt safetensors.DType) bool { return dt == safetensors.F32 || dt == safetensors.BF16 }

// readAs reads a tensor into raw as values of another type.
func readAs(dt safetensors.DType, from safetensors.Tensor, raw []byte) error {
	if dt == safetensors.F32 {
		return from.Floats(dtype.View[float32](raw), 0)
	}
	wide, err := from.Float32()
	if err != nil {
		return err
	}
	dtype.F32ToBF16(dtype.View[uint16](raw), wide)
	return nil
}
