//go:build unix

package examples_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A second signal ends a run at once, the last checkpoint as it was.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	r := p.start("run", "pipeline.yaml", "--json", "--set", "stages.train.steps=100000", "--set", "stages.checkpoint.every=1",
		"--set", "stages.prefetch.batch_size=9", "--set", "stages.train.gradient_accumulation=100", "--set", "stages.train.validate_every=0")
	r.await(`"event":"validation"`)
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
	r.await("a second signal stops at once")
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGINT))
	sent := time.Now()
	o := r.wait()
	require.Equal(t, 130, o.code, o.all())
	require.Less(t, time.Since(sent), 30*time.Second)
	require.Empty(t, o.events(t, "saved"))
}

// A run that waits for another stops on a signal.
func TestSignalWhileWaiting(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	first := p.start(quick("pipeline.yaml", "stages.train.steps=100000")...)
	first.await(`"event":"step"`)
	waiting := p.start(append(quick("pipeline.yaml", "name=other"), "--wait")...)
	waiting.await("waiting for the cache")
	require.NoError(t, waiting.cmd.Process.Signal(syscall.SIGINT))
	o := waiting.wait()
	require.Equal(t, 130, o.code, o.all())
	require.Less(t, o.took, 30*time.Second)
}

// Losses that are not finite update nothing and end the run after a while; the
// last good checkpoint stands, and with the cause gone the run goes on from it.
func TestNotFinite(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.done(quick("pipeline.yaml")...)
	o := p.run(quick("pipeline.yaml", "stages.train.steps=100", "stages.checkpoint.every=50",
		"stages.train.max_nonfinite=3", "stages.dataset.loss_multiplier=1e39")...)
	require.Equal(t, 1, o.code, o.all())
	require.Contains(t, said(o), "not finite in 3 steps in a row")
	require.Empty(t, o.events(t, "saved"))
	require.Equal(t, []int{5, 6, 7}, o.steps(t))
	for _, e := range o.events(t, "step") {
		require.Equal(t, true, e["skipped"])
		require.Contains(t, []any{"+Inf", "NaN"}, e["loss"])
	}
	o = p.done(quick("pipeline.yaml", "stages.train.steps=6")...)
	require.Equal(t, []int{5, 6}, o.steps(t))
}
