package stages_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/pipeline"
	"longship/stages"
)

// short is the stock pipeline in little.
const short = `
name: short
device: cpu
model: {path: %[1]s/model}
output: %[2]s/output
stages:
  - dataset:    {folder: %[1]s/photos, resolution: [32], validation: 1, cache: %[2]s/cache}
  - latents:    {cache: %[2]s/cache}
  - textembed:  {cache: %[2]s/cache, max_length: 64}
  - quantize:   {cache: %[2]s/cache}
  - prefetch:   {offload: 0.5}
  - train:      {steps: 4, network: {rank: 2}, validate_every: 2}
  - checkpoint: {every: 1, keep: 1}
`

// load reads the pipeline, its results below dir.
func load(t *testing.T, dir string) *pipeline.Pipeline {
	t.Helper()
	quickstart, err := filepath.Abs(filepath.FromSlash("../examples/quickstart"))
	require.NoError(t, err)
	reg, err := pipeline.NewRegistry(stages.Builtin()...)
	require.NoError(t, err)
	p, err := reg.Parse(fmt.Appendf(nil, short, filepath.ToSlash(quickstart), filepath.ToSlash(dir)), pipeline.Options{})
	require.NoError(t, err)
	return p
}

// A run that is cancelled, or asked to stop, at whatever event, ends soon,
// closes everything, and goes on when it is started again.
func TestCancelledAndStoppedAtEveryEvent(t *testing.T) {
	var events int
	_, err := load(t, t.TempDir()).Run(t.Context(), pipeline.RunOptions{OnEvent: func(pipeline.Event) { events++ }})
	require.NoError(t, err)
	require.Greater(t, events, 10)
	for _, soft := range []bool{false, true} {
		dir := t.TempDir() // goes on from what the last left
		for at := 1; at <= events; at += 3 {
			before := goleak.IgnoreCurrent()
			ctx, cancel := context.WithCancelCause(t.Context())
			signals := make(chan os.Signal, 1)
			cause := errors.New("enough")
			seen := 0
			deadline := time.AfterFunc(30*time.Second, func() { panic(fmt.Sprintf("the run hangs: soft %v, event %d", soft, at)) })
			_, err := load(t, dir).Run(ctx, pipeline.RunOptions{Signals: signals, OnEvent: func(pipeline.Event) {
				switch seen++; {
				case seen != at:
				case soft:
					signals <- os.Interrupt
				default:
					cancel(cause)
				}
			}})
			deadline.Stop()
			cancel(nil)
			switch {
			case seen < at:
				require.NoError(t, err)
			case soft && err != nil:
				require.Equal(t, pipeline.ErrInterrupted, err, "at event %d", at)
			case err != nil:
				require.Equal(t, cause, err, "at event %d", at)
			}
			goleak.VerifyNone(t, before)
		}
		_, err := load(t, dir).Run(t.Context(), pipeline.RunOptions{})
		require.NoError(t, err)
		require.FileExists(t, filepath.Join(dir, "output", "short", "short.safetensors"))
	}
}
