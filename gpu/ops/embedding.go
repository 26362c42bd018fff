package ops

import (
	"fmt"
	"math"

	"longship/gpu"
	"longship/gpu/tensor"
)

// Sinusoid embeds times: with half = cols/2 and f_i = exp(-ln(10000)·i/half),
//
//	Y[b] = [cos(T[b]·f_0) … cos(T[b]·f_half-1), sin(T[b]·f_0) … sin(T[b]·f_half-1)]
//
// T [B] F32 (FLUX.2: sigma or guidance times 1000), Y [B, even] F32. Frequencies
// and phases are float32 products, as the reference has them: its phase
// rounding is part of what the model was trained with. Source: diffusers
// get_timestep_embedding(flip_sin_to_cos, downscale_freq_shift=0).
type Sinusoid struct{ Y, T tensor.Tensor }

// Name is "sinusoid".
func (Sinusoid) Name() string { return "sinusoid" }

// Check demands an even width.
func (k Sinusoid) Check() error {
	var c check
	c.array("t", k.T, tensor.F32, k.T.Len())
	c.matrix("y", k.Y, k.T.Len(), k.Y.Cols())
	c.that(k.Y.Cols()%2 == 0, "y has %d columns, want pairs", k.Y.Cols())
	return c.err
}

// Host computes row by row.
func (k Sinusoid) Host(w gpu.Workers) error {
	y, t := open(k.Y), k.T.Float32s()
	half := y.cols / 2
	step := float32(-math.Log(10000))
	eachRow(w, y.n, 16*y.cols, func(i int) {
		row := y.row(i)
		for j := range half {
			f := float32(math.Exp(float64(step * float32(j) / float32(half))))
			phase := float64(t[i] * f)
			row[j], row[half+j] = float32(math.Cos(phase)), float32(math.Sin(phase))
		}
	})
	return nil
}

// Lookup is Y[i] = W[IDs[i]]: rows of an embedding table in any weight type,
// expanded as Expand does. IDs [n] I32 contiguous, Y [n, D] F32 or BF16. An id
// outside the table is an error.
type Lookup struct {
	Y   tensor.Tensor
	W   tensor.Weight
	IDs tensor.Tensor
}

// Name is "lookup".
func (Lookup) Name() string { return "lookup" }

// Check demands shapes that fit.
func (k Lookup) Check() error {
	var c check
	d := k.W.Data
	c.array("ids", k.IDs, tensor.I32, k.IDs.Len())
	c.that(toF32(d.DType) != nil, "weight is %s %v, which cannot be expanded", d.DType, d.Shape)
	c.that(k.Y.DType == tensor.F32 || k.Y.DType == tensor.BF16, "y is %s, want f32 or bf16", k.Y.DType)
	c.typed("y", k.Y, k.Y.DType, k.IDs.Len(), d.Cols())
	if k.W.Scale.Valid() {
		c.array("scale", k.W.Scale, tensor.F32, d.Rows())
	}
	return c.err
}

// Host expands the rows asked for.
func (k Lookup) Host(w gpu.Workers) error {
	n := k.W.Data.Rows()
	for i, id := range tensor.Host[int32](k.IDs) {
		if id < 0 || int(id) >= n {
			return fmt.Errorf("id %d at position %d is outside a table of %d rows", id, i, n)
		}
	}
	for i, id := range tensor.Host[int32](k.IDs) {
		row := tensor.Weight{Data: k.W.Data.RowRange(int(id), int(id)+1)}
		if k.W.Scale.Valid() {
			row.Scale = k.W.Scale.View(n, 1).RowRange(int(id), int(id)+1)
		}
		convert(w, k.Y.RowRange(i, i+1), row.Data, scales(row))
	}
	return nil
}

// scales returns a weight's row scales, nil without.
func scales(w tensor.Weight) []float32 {
	if !w.Scale.Valid() {
		return nil
	}
	return w.Scale.Float32s()
}
