//go:build unix

package examples_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// resumed is the run of resume.yaml, with fewer steps where time is short.
func resumed(more ...string) []string {
	args := []string{"run", "resume.yaml", "--json"}
	if os.Getenv("LONGSHIP_LONG") == "" {
		more = append([]string{"stages.train.steps=8", "stages.checkpoint.every=2", "stages.train.validate_every=4"}, more...)
	}
	for _, s := range more {
		args = append(args, "--set", s)
	}
	return args
}

// course is what a run leaves: its adapters by file name.
type course struct {
	adapters map[string]string
	steps    []int
	took     time.Duration
}

// undisturbed is the run of resume.yaml from its start to its end in one
// process, with every numbered adapter kept.
func undisturbed(t *testing.T, more ...string) course {
	p := newProject(t)
	o := p.done(resumed(append(more, "stages.checkpoint.keep=0")...)...)
	c := course{adapters: adaptersOf(t, p), steps: o.steps(t), took: o.took}
	require.NotEmpty(t, names(c.adapters))
	return c
}

func adaptersOf(t testing.TB, p *project) map[string]string {
	files := tree(t, p.path("output/resume"))
	maps.DeleteFunc(files, func(name, _ string) bool { return !strings.HasSuffix(name, ".safetensors") })
	return files
}

// requireSame compares what a disturbed run left with the undisturbed one.
func requireSame(t *testing.T, p *project, want course) {
	t.Helper()
	got := adaptersOf(t, p)
	require.Contains(t, names(got), "resume.safetensors")
	require.Greater(t, len(got), 1, "no numbered adapter is left")
	for name, content := range got {
		require.Contains(t, names(want.adapters), name)
		require.True(t, want.adapters[name] == content, "%s differs from the undisturbed run's", name)
	}
	for _, name := range names(tree(t, p.path("output/resume"))) {
		require.NotContains(t, name, ".partial")
	}
}

// A moment at which a run is killed: await returns when it is there, false
// where the run ended before.
type moment struct {
	name  string
	await func(ended <-chan struct{}) bool
}

// after is a time after the start.
func after(d time.Duration) moment {
	return moment{"after " + d.Round(time.Millisecond).String(), func(ended <-chan struct{}) bool {
		select {
		case <-time.After(d):
			return true
		case <-ended:
			return false
		}
	}}
}

// whileWriting is while a file of the pattern is there.
func whileWriting(pattern string) moment {
	return moment{"while " + filepath.Base(pattern) + " is written", func(ended <-chan struct{}) bool {
		for {
			if found, _ := filepath.Glob(pattern); len(found) > 0 {
				return true
			}
			select {
			case <-ended:
				return false
			case <-time.After(200 * time.Microsecond):
			}
		}
	}}
}

// A run that is killed at random moments, inside saves too, and started again
// until it ends, leaves the adapters of an undisturbed run, byte for byte, on
// any number of cores. So do the random bits of stochastic rounding.
func TestResumeAfterKill(t *testing.T) {
	t.Parallel()
	bfloat16 := "stages.train.network.dtype=bfloat16"
	want := undisturbed(t, bfloat16)
	p := newProject(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))

	adapterFile := whileWriting(p.path("output/resume/*.safetensors.partial"))
	stateFile := whileWriting(p.path("output/resume/state/*.state.partial"))
	moments := []moment{
		after(time.Duration(random.Float64() * float64(300*time.Millisecond))), // while encoding
		stateFile, adapterFile,
		after(time.Duration(random.Float64() * float64(want.took) / 2)),
		adapterFile, stateFile,
	}
	if os.Getenv("LONGSHIP_LONG") != "" {
		for range 20 {
			moments = append(moments, after(time.Duration(random.Float64()*float64(want.took)/2)), adapterFile, stateFile)
		}
	}
	killed, inside := 0, 0
	taken := map[int]bool{}
	for n := 0; ; n++ {
		p.env = []string{fmt.Sprint("GOMAXPROCS=", 1+n%3)}
		r := p.start(resumed(bfloat16)...)
		var at moment
		struck := false
		ended := make(chan struct{})
		var killer sync.WaitGroup
		if n < len(moments) {
			at = moments[n]
			killer.Go(func() {
				if struck = at.await(ended); struck {
					r.cmd.Process.Signal(syscall.SIGKILL)
				}
			})
		}
		o := r.wait()
		close(ended)
		killer.Wait()
		for _, step := range o.steps(t) {
			taken[step] = true
		}
		if o.code == 0 {
			break
		}
		require.True(t, struck && o.code == -1, o.all())
		killed++
		halves, err := filepath.Glob(p.path("output/resume/*.partial"))
		require.NoError(t, err)
		more, err := filepath.Glob(p.path("output/resume/state/*.partial"))
		require.NoError(t, err)
		if len(halves)+len(more) > 0 {
			inside++
		}
		t.Logf("killed %s; half written: %v", at.name, append(halves, more...))
	}
	t.Logf("killed %d times, %d of them inside a save", killed, inside)
	require.GreaterOrEqual(t, killed, 3)
	require.Positive(t, inside, "no kill hit a save")
	require.ElementsMatch(t, want.steps, slices.Collect(maps.Keys(taken)))
	requireSame(t, p, want)
}

// A run that is asked to stop finishes its step, saves it, exits with 130, and
// goes on from there without a step twice.
func TestResumeAfterSignal(t *testing.T) {
	t.Parallel()
	want := undisturbed(t)
	p := newProject(t)
	var steps []int
	for i, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p.env = []string{fmt.Sprint("GOMAXPROCS=", 2-i)}
		r := p.start(resumed()...)
		r.await(fmt.Sprintf(`"step":%d,"steps"`, 3+3*i))
		require.NoError(t, r.cmd.Process.Signal(sig))
		o := r.wait()
		require.Equal(t, 130, o.code, o.all())
		steps = append(steps, o.steps(t)...)
		saved := o.events(t, "saved")
		require.Equal(t, float64(steps[len(steps)-1]), saved[len(saved)-1].number("step"), "the last step was not saved")
		require.Equal(t, "interrupted", o.summary(t)["result"])
		require.Contains(t, o.stderr, "run the same command again")
	}
	o := p.done(resumed()...)
	require.Equal(t, want.steps, append(steps, o.steps(t)...))
	require.True(t, adaptersOf(t, p)["resume.safetensors"] == want.adapters["resume.safetensors"], "the final adapter differs")
}

// A signal before training stops the run as well, and what was encoded is kept.
func TestSignalWhileEncoding(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	r := p.start("run", "pipeline.yaml", "--json", "--set", "stages.dataset.resolution=[128, 256, 384, 512]")
	r.await(`"unit":"images"`)
	r.await("autoencoder loaded")
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	o := r.wait()
	require.Equal(t, 130, o.code, o.all())
	require.Empty(t, o.steps(t))
	encoded := o.summary(t).number("latents.latents encoded")
	require.Positive(t, encoded)
	require.Less(t, encoded, 48.0, "the signal came too late to show anything")
	require.NoFileExists(t, p.path(adapter))
}
