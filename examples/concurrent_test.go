//go:build unix

package examples_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ownCache gives every stage of a run a cache that no other run has.
var ownCache = []string{
	"stages.dataset.cache=own", "stages.latents.cache=own", "stages.textembed.cache=own", "stages.quantize.cache=own",
}

// Of two runs the second fails at once and names the first by pid, run and
// start, over the cache as over the output; with --wait it waits. One that was
// killed is in nobody's way.
func TestSecondRun(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	first := p.start(quick("pipeline.yaml", "stages.train.steps=100000")...)
	first.await(`"event":"step"`)
	pid := fmt.Sprintf("process %d ", first.cmd.Process.Pid)

	for what, settings := range map[string][]string{"cache ": {"name=other"}, "the output of run quickstart": ownCache} {
		o := p.run(quick("pipeline.yaml", settings...)...)
		require.Equal(t, 1, o.code, o.all())
		require.Less(t, o.took, 20*time.Second)
		last := o.stderr[strings.LastIndex(strings.TrimSpace(o.stderr), "\n")+1:]
		for _, text := range []string{what, "is in use by", pid, `run "quickstart"`, "started " + first.started.Format("2006-01-02"), "--wait"} {
			require.Contains(t, last, text)
		}
	}
	summary, err := os.ReadDir(p.path("output/quickstart"))
	require.NoError(t, err)
	for _, e := range summary {
		require.NotEqual(t, "summary.json", e.Name(), "the second run wrote into the first one's folder")
	}
	ls := p.run("cache", "ls", "cache")
	require.Equal(t, 1, ls.code, ls.all())
	require.Contains(t, ls.stderr, pid)

	waiting := p.start(append(quick("pipeline.yaml", "name=other"), "--wait")...)
	waiting.await("waiting for the cache")
	time.Sleep(300 * time.Millisecond)
	require.Empty(t, strings.TrimSpace(waiting.stdout.String()), "it does not wait")
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGKILL))
	require.Equal(t, -1, first.wait().code)
	o := waiting.wait()
	require.Equal(t, 0, o.code, o.all())
	require.Equal(t, []int{1, 2, 3, 4}, o.steps(t))
}

// --wait waits for another run's output as well.
func TestWaitForOutput(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	first := p.start(quick("pipeline.yaml", "stages.train.steps=100000")...)
	first.await(`"event":"saved"`)
	waiting := p.start(append(quick("pipeline.yaml", append(ownCache, "stages.train.steps=100000")...), "--wait")...)
	waiting.await("waiting for the run's folder")
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGTERM))
	one := first.wait()
	require.Equal(t, 130, one.code, one.all())
	waiting.await(`"event":"saved"`)
	require.NoError(t, waiting.cmd.Process.Signal(syscall.SIGTERM))
	two := waiting.wait()
	require.Equal(t, 130, two.code, two.all())
	steps := one.steps(t)
	require.Equal(t, steps[len(steps)-1]+1, two.steps(t)[0])
}
