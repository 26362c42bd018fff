// Package cachefill has what the stages that fill the cache share: whether they
// can have one, which tensors are missing, and how values become an entry's bytes. The functions
// may be called from any goroutine.
package cachefill

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"

	"longship/cache"
	"longship/cache/folderlock"
	"longship/internal/dtype"
	"longship/pipeline"
)

// Check says, as a fault of the key cache, why a stage cannot have its cache in
// a folder, as far as that can be seen without writing.
func Check(dir pipeline.Path) error {
	if err := folderlock.Writable(string(dir)); err != nil {
		return &pipeline.FieldError{Path: "cache", Msg: err.Error(), Err: err}
	}
	return nil
}

// Missing returns the indices of the refs that the store does not have, in
// order, every tensor once. After a crash the store reads tensors to see whether
// they are whole, so it is asked from all cores.
func Missing(ctx context.Context, store *cache.Store, refs []cache.Ref) ([]int, error) {
	var first []int
	seen := make(map[cache.Key]bool, len(refs))
	for i, r := range refs {
		if !seen[r.Key] {
			seen[r.Key] = true
			first = append(first, i)
		}
	}
	missing := make([]bool, len(first))
	g, ctx := errgroup.WithContext(ctx)
	cores := runtime.GOMAXPROCS(0)
	for c := range cores {
		g.Go(func() error {
			for k := c; k < len(first) && ctx.Err() == nil; k += cores {
				missing[k] = !store.Has(ctx, refs[first[k]])
			}
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var out []int
	for k, i := range first {
		if missing[k] {
			out = append(out, i)
		}
	}
	return out, nil
}

// Bytes returns values as the bytes of an entry of type dt: "f32" (which shares
// the memory of values) or "bf16".
func Bytes(values []float32, dt string) []byte {
	if dt == "bf16" {
		half := make([]uint16, len(values))
		dtype.F32ToBF16(half, values)
		return dtype.Bytes(half)
	}
	return dtype.Bytes(values)
}
