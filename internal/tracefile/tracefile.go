// Package tracefile gives the stages of a run the trace that its steps and
// stages are written into, where the user asked for one.
package tracefile

import (
	"context"
	"fmt"
	"os"

	"longship/cache/atomicfile"
	"longship/gpu/profile"
	"longship/pipeline"
)

// Use makes t the trace of a run, before its stages have asked for it.
func Use(ctx context.Context, env *pipeline.Env, t *profile.Trace) error {
	_, err := pipeline.Shared(ctx, env, "trace", func(context.Context) (*profile.Trace, error) { return t, nil })
	return err
}

// Of returns the trace of a run, nil where there is none.
func Of(ctx context.Context, env *pipeline.Env) (*profile.Trace, error) {
	return pipeline.Shared(ctx, env, "trace", func(context.Context) (*profile.Trace, error) { return nil, nil })
}

// Write writes the file; a file of that name is replaced.
func Write(path string, t *profile.Trace) error {
	err := atomicfile.Write(path, func(f *os.File) error { return t.Write(f) })
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}
