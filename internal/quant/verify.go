package quant

import (
	"context"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"longship/gpu/memory"
)

// Verify reads every unit of a set on all cores and compares its checksum; the
// error of a unit that does not match wraps memory.ErrDamaged. progress is told
// the bytes that are done, from several goroutines; it may be nil.
func Verify(ctx context.Context, set *memory.WeightSet, progress func(done, total int64)) error {
	units := append([]memory.Unit{set.Outer}, set.Units...)
	var total int64
	for _, u := range units {
		total += u.Bytes
	}
	var done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, u := range units {
		g.Go(func() error {
			return set.Load(ctx, u, func(_ int64, piece []byte) error {
				if now := done.Add(int64(len(piece))); progress != nil {
					progress(now, total)
				}
				return nil
			})
		})
	}
	return g.Wait()
}
