package train

import (
	"context"
	"encoding/binary"

	"longship/internal/adapter"
	"longship/stages/port"
)

// The counters of a run beside runstate.CountMicroBatches, as its state names them.
const (
	countUpdates   = "updates"       // optimiser updates taken
	countSkipped   = "skipped"       // steps without an update, since something was not finite
	countNonFinite = "nonfinite_row" // of those, the last in a row
)

// params lists the adapter's tensors with their averages and moments.
func (t *trainer) params() []port.Param {
	var out []port.Param
	for _, p := range t.set.Params() {
		q := port.Param{
			Module: p.Layer.Module.Name, Part: p.Part,
			Rows:  port.Rows{Lo: p.Layer.Lo, Hi: p.Layer.Hi},
			Split: split(p.Layer), Value: p.Value, Optimizer: t.opt.State(p.Name()),
		}
		for _, r := range q.Split {
			if r.Lo == q.Rows.Lo && r.Hi == q.Rows.Hi {
				q.Rows.Name = r.Name
			}
		}
		if t.ema != nil {
			q.EMA = t.ema.Average(p.Name())
		}
		out = append(out, q)
	}
	return out
}

// split returns all rows of a layer's module by their names in the diffusers layout.
func split(l adapter.Layer) []port.Rows {
	out := make([]port.Rows, len(l.Module.Parts))
	for i, p := range l.Module.Parts {
		out[i] = port.Rows{Name: p.Name, Lo: p.Lo, Hi: p.Hi}
	}
	return out
}

// memory is how borrowers of the state reach its tensors; nil where they can
// address them.
func (t *trainer) memory() port.Memory {
	if t.opt.Taken().Buf.Host() != nil {
		return nil
	}
	return t.move
}

// setUpdates sets the number of updates taken, as a resumed run needs it.
func (t *trainer) setUpdates(ctx context.Context, n int64) error {
	raw := binary.LittleEndian.AppendUint32(nil, uint32(n))
	return t.move.Write(ctx, t.opt.Taken(), raw)
}
