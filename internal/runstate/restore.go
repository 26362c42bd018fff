package runstate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"longship/gpu/tensor"
	"longship/internal/safetensors"
	"longship/stages/port"
)

// Restore puts a checkpoint into a state that has been laid out for the same
// run: step, counters, and the bytes of every tensor. A moving average that is
// new in this run starts from the values; one that is no longer kept is left.
// A tensor that is missing or of another type or shape is an error.
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
	if from.DType != fileTypes[t.DType] || !slices.Equal(from.Shape, t.Shape) {
		return from.Errorf("it is %s%v, the run has %s%v", from.DType, from.Shape, fileTypes[t.DType], t.Shape)
	}
	if m == nil {
		_, err := from.ReadAt(t.Region().Bytes(), 0)
		return err
	}
	if n := int(from.Bytes); cap(*scratch) < n {
		*scratch = make([]byte, n)
	}
	raw := (*scratch)[:from.Bytes]
	if _, err := from.ReadAt(raw, 0); err != nil {
		return err
	}
	return m.Write(ctx, t, raw)
}
