package lorafile

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"

	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/safetensors"
	"longship/stages/port"
)

// Options say how an adapter is written.
type Options struct {
	Layout string // ComfyUI or Diffusers
	DType  string // bf16, fp16 or fp32; see ParseDType
	Name   string // the run's name, for the metadata
}

// ParseDType returns the element type that a config's word means, ai-toolkit's
// longer words included.
func ParseDType(s string) (safetensors.DType, error) {
	switch s {
	case "bf16", "bfloat16":
		return safetensors.BF16, nil
	case "fp16", "float16":
		return safetensors.F16, nil
	case "fp32", "float32":
		return safetensors.F32, nil
	}
	return "", fmt.Errorf("%q is none of bf16, fp16, fp32", s)
}

// Write writes the adapter of a state into an empty file, tensor by tensor, and
// returns the file's digest. Where the state has a moving average (EMA) the file
// holds that. A value that is not finite, or not in the file's type, is an error
// that names its tensor. Syncing the file is the caller's part.
func Write(ctx context.Context, f *os.File, opt Options, st *port.State) (Digest, error) {
	if st.Adapter.Type != "lora" {
		return Digest{}, fmt.Errorf("adapter type %q cannot be written in the layout %s", st.Adapter.Type, opt.Layout)
	}
	dt, err := ParseDType(opt.DType)
	if err != nil {
		return Digest{}, err
	}
	ps, err := pairs(st.Params)
	if err != nil {
		return Digest{}, err
	}
	w := &writer{ctx: ctx, st: st, dtype: dt, scale: float32(st.Adapter.Scale())}
	meta := metadata(opt, st)
	var outs []safetensors.Out
	switch opt.Layout {
	case ComfyUI:
		outs = w.comfyui(ps)
	case Diffusers:
		var modules []ranked
		outs, modules = w.diffusers(ps)
		meta["lora_adapter_metadata"] = peftMetadata(modules)
	default:
		return Digest{}, fmt.Errorf("layout %q is none of %v", opt.Layout, Layouts)
	}
	d := newDigester(f)
	if _, err := safetensors.Write(d, meta, outs); err != nil {
		return Digest{}, err
	}
	return d.finish(f)
}

// Size returns about how many bytes Write writes, for finding out beforehand
// whether the disk has room.
func Size(opt Options, st *port.State) (int64, error) {
	dt, err := ParseDType(opt.DType)
	if err != nil {
		return 0, err
	}
	var n int64
	for _, p := range st.Params {
		copies := 1
		if opt.Layout == Diffusers && p.Part == "lora_A" && p.Rows.Hi-p.Rows.Lo == p.Out() {
			copies = len(p.Split)
		}
		n += int64(copies) * int64(p.Value.Len()*dt.Bits()/8+300)
	}
	return n, nil
}

// writer casts and writes tensors of a state. Its scratch is as large as the
// largest tensor, and only where the host cannot address float32 values.
type writer struct {
	ctx     context.Context
	st      *port.State
	dtype   safetensors.DType
	scale   float32 // alpha/rank
	raw     []byte
	widened []float32
}

// out is a tensor to be written by fill when it is its turn.
func (w *writer) out(name string, rows, cols int, fill func(context.Context, io.Writer) error) safetensors.Out {
	return safetensors.Out{Name: name, DType: w.dtype, Shape: []int{rows, cols}, Write: func(dst io.Writer) error {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		return fill(w.ctx, dst)
	}}
}

// rows writes rows [lo, hi) of a parameter times scale.
func (w *writer) rows(ctx context.Context, dst io.Writer, p port.Param, lo, hi int, scale float32) error {
	values, err := w.load(ctx, p)
	if err != nil {
		return err
	}
	cols := p.Value.Cols()
	return w.cast(dst, p, values[lo*cols:hi*cols], scale)
}

// load returns the values of a parameter to be saved, in float32. They are valid until
// the next load.
func (w *writer) load(ctx context.Context, p port.Param) ([]float32, error) {
	t := p.Value
	if p.EMA.Valid() {
		t = p.EMA
	}
	if w.st.Memory == nil && t.DType == tensor.F32 {
		return t.Float32s(), nil
	}
	raw := t.Buf.Host()
	if w.st.Memory != nil {
		w.raw = grow(w.raw, int(t.Bytes()))
		if err := w.st.Memory.Read(ctx, t, w.raw); err != nil {
			return nil, fmt.Errorf("read %s: %w", p.Name(), err)
		}
		raw = w.raw
	} else {
		raw = raw[t.Off : t.Off+t.Bytes()]
	}
	switch t.DType {
	case tensor.F32:
		return dtype.View[float32](raw), nil
	case tensor.BF16:
		w.widened = grow(w.widened, t.Len())
		dtype.BF16ToF32(w.widened, dtype.View[uint16](raw))
		return w.widened, nil
	}
	return nil, fmt.Errorf("%s: values of type %s cannot be saved", p.Name(), t.DType)
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// cast writes values times scale in the file's type, a piece at a time. p
// names them in errors.
func (w *writer) cast(dst io.Writer, p port.Param, values []float32, scale float32) error {
	const piece = 1 << 14
	var scaled [piece]float32
	var narrow [piece]uint16
	for lo := 0; lo < len(values); lo += piece {
		n := min(piece, len(values)-lo)
		for i, v := range values[lo : lo+n] {
			v *= scale
			if v-v != 0 || w.dtype == safetensors.F16 && math.Abs(float64(v)) >= maxF16 {
				return fmt.Errorf("%s has the value %v, which %s cannot hold: the training diverged; go back to an earlier checkpoint and lower the learning rate", p.Name(), v, w.dtype)
			}
			scaled[i] = v
		}
		var raw []byte
		switch w.dtype {
		case safetensors.BF16:
			dtype.F32ToBF16(narrow[:n], scaled[:n])
			raw = dtype.Bytes(narrow[:n])
		case safetensors.F16:
			dtype.F32ToF16(narrow[:n], scaled[:n])
			raw = dtype.Bytes(narrow[:n])
		default:
			raw = dtype.Bytes(scaled[:n])
		}
		if _, err := dst.Write(raw); err != nil {
			return err
		}
	}
	return nil
}

// maxF16 is the least magnitude that rounds to infinity in float16.
const maxF16 = 65520
