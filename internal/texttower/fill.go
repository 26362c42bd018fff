package texttower

import (
	"context"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"longship/gpu/memory"
	"longship/internal/dtype"
	"longship/internal/quant"
	"longship/internal/weights"
)

// readAtOnce bounds the values that one goroutine holds of a weight.
const readAtOnce = 1 << 18

// fill makes a layer's bytes: its weights are read some rows at a time and
// quantised into their place. It is a memory.WeightSet's Fill.
func (f *Files) fill(ctx context.Context, u memory.Unit, dst []byte) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, e := range u.Entries {
		w := f.bound.Weight(e.Name)
		step := max(1, readAtOnce/w.Cols())
		for lo := 0; lo < w.Rows(); lo += step {
			hi := min(lo+step, w.Rows())
			g.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				return fillRows(dst, e, w, lo, hi)
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, e := range u.Entries {
		f.bound.Weight(e.Name).Drop()
	}
	return nil
}

// fillRows makes rows [lo, hi) of one entry.
func fillRows(dst []byte, e memory.Entry, w weights.Weight, lo, hi int) error {
	var scales []float32
	if e.Scale >= 0 {
		scales = dtype.View[float32](dst[e.Scale+int64(lo)*4 : e.Scale+int64(hi)*4])
	}
	size := int64(w.Cols() * e.DType.Size())
	enc := encoders.Get().(*quant.Encoder)
	defer encoders.Put(enc)
	return enc.Rows(dst[e.Off+int64(lo)*size:e.Off+int64(hi)*size], scales, w, lo, hi, e.DType)
}

var encoders = sync.Pool{New: func() any { return new(quant.Encoder) }}
