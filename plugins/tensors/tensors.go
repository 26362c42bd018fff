// Package tensors gives a stage the tensors behind the claim checks of its
// messages (cache.Ref), wherever it runs: in process straight from the run's cache,
// in a program of its own through longship, which alone may have the cache open.
package tensors

import (
	"context"

	"longship/cache"
	"longship/pipeline"
)

// Store holds tensors; *cache.Store is one. Its methods may be called from any
// goroutine.
type Store interface {
	// Get returns the bytes of a tensor, little-endian, in dst's memory where
	// they fit. The error is cache.ErrNotFound if there is none.
	Get(ctx context.Context, ref cache.Ref, dst []byte) ([]byte, error)
	// Has says whether a tensor can be had.
	Has(ctx context.Context, ref cache.Ref) bool
	// Put stores a tensor under ref.Key: little-endian, at most cache.MaxTensor bytes.
	Put(ctx context.Context, ref cache.Ref, data []byte) error
	// Dir is the cache's folder: what Sample.LatentCache and TextCache name.
	Dir() string
}

// Opener opens the tensors of a cache folder.
type Opener func(ctx context.Context, dir string) (Store, error)

const key = "plugins/tensors"

// Open returns the tensors of a cache folder for a stage of the run.
func Open(ctx context.Context, env *pipeline.Env, dir string) (Store, error) {
	open, err := pipeline.Shared(ctx, env, key, func(context.Context) (Opener, error) {
		return func(ctx context.Context, dir string) (Store, error) { return cache.Shared(ctx, env, dir) }, nil
	})
	if err != nil {
		return nil, err
	}
	return open(ctx, dir)
}

// Provide has Open use an opener. It is for whoever runs stages elsewhere, and
// is called before the first Open.
func Provide(ctx context.Context, env *pipeline.Env, open Opener) error {
	_, err := pipeline.Shared(ctx, env, key, func(context.Context) (Opener, error) { return open, nil })
	return err
}
