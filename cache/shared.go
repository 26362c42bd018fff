package cache

import (
	"context"

	"github.com/hashicorp/go-hclog"

	"longship/pipeline"
)

// Shared returns the run's one Store of a folder, opening it for the first
// stage that asks; the run closes it after its stages. Two names of one folder
// give one Store. Env says whether to wait for a folder in use, which ends when
// the run is asked to stop; the logger is that of ctx (hclog.WithContext).
func Shared(ctx context.Context, env *pipeline.Env, dir string) (*Store, error) {
	real, err := resolve(dir, false)
	if err != nil {
		return nil, err
	}
	store, err := pipeline.Shared(ctx, env, "cache:"+real, func(ctx context.Context) (*Store, error) {
		ctx, cancel := env.UntilStopped(ctx)
		defer cancel()
		return Open(ctx, real, Options{Wait: env.Wait, Rehash: env.Rehash, Run: env.Name, Log: hclog.FromContext(ctx).Named("cache")})
	})
	if err != nil {
		return nil, err
	}
	return store, nil
}
