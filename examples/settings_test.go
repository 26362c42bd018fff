package examples_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/internal/tinymodel"
)

// What may change between two runs of one name is applied and named.
func TestChangedSettingsAreNamed(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.done(quick("pipeline.yaml")...)
	o := p.done(quick("pipeline.yaml", "stages.train.steps=6")...)
	require.Equal(t, []int{5, 6}, o.steps(t))
	require.True(t, o.logged("train.steps", `"was":"4"`, `"is":"6"`), o.stderr)

	o = p.done(quick("pipeline.yaml", "stages.train.steps=8", "stages.train.lr=5e-4", "stages.prefetch.offload=1", "stages.dataset.resolution=[80]")...)
	require.Equal(t, []int{7, 8}, o.steps(t))
	require.True(t, o.logged("train.lr", `"was":"0.002"`, `"is":"0.0005"`), o.stderr)
	require.True(t, o.logged("prefetch.offload"), o.stderr)
	require.True(t, o.logged("the dataset has changed", `"added":9`, `"gone":9`), o.stderr)
	for _, e := range o.events(t, "step") {
		require.Equal(t, 5e-4, e.number("lr"))
	}
}

// What may not change is refused with the way out, and nothing of the run is
// touched; --restart moves it aside and starts afresh.
func TestChangedResultIsRefused(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	require.NoError(t, tinymodel.Write(p.path("other"), tinymodel.Dev, tinymodel.Seed+1))
	p.done(quick("pipeline.yaml")...)
	before := tree(t, p.path("output"))
	for name, setting := range map[string]string{
		"train.network.rank": "stages.train.network.rank=8",
		"train.optimizer":    "stages.train.optimizer=adamw8bit",
		"seed":               "seed=43",
		"base weights":       "model.path=other",
	} {
		t.Run(name, func(t *testing.T) {
			o := p.run(quick("pipeline.yaml", "stages.train.steps=6", setting)...)
			require.Equal(t, 2, o.code, o.all())
			require.Contains(t, o.stderr, name+": ")
			require.Contains(t, o.stderr, "--restart")
			require.Contains(t, o.stderr, "another name")
			require.Empty(t, o.steps(t))
			requireTree(t, before, p.path("output"))
		})
	}
	p.done(quick("pipeline.yaml", "stages.train.network.rank=8", "name=another")...)

	o := p.done(append(quick("pipeline.yaml", "stages.train.network.rank=8"), "--restart")...)
	require.Equal(t, []int{1, 2, 3, 4}, o.steps(t))
	aside := tree(t, p.path("output/quickstart.old-1"))
	for name, content := range before {
		rel, _ := strings.CutPrefix(name, "quickstart/")
		if !strings.HasPrefix(rel, "state/lock") {
			require.True(t, aside[rel] == content, "%s was not moved aside", rel)
		}
	}
	require.NotEqual(t, before["quickstart/quickstart.safetensors"], string(p.read(adapter)))
}

// requireTree requires that the files below a folder are as they were.
func requireTree(t *testing.T, want map[string]string, dir string) {
	t.Helper()
	got := tree(t, dir)
	require.ElementsMatch(t, names(want), names(got))
	for name, content := range want {
		require.True(t, got[name] == content, "%s has changed", name)
	}
}

// A finished run that is started again says so, succeeds and changes no file.
func TestFinishedRun(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.done(quick("pipeline.yaml")...)
	before, times := tree(t, p.path("output")), changed(t, p.path("output"))
	o := p.done(quick("pipeline.yaml")...)
	require.Empty(t, o.steps(t))
	require.True(t, o.logged("finished", "steps", "--restart"), o.stderr)
	require.Contains(t, o.summary(t)["train.steps"], "finished before, at step 4")
	requireTree(t, before, p.path("output"))
	require.Equal(t, times, changed(t, p.path("output")))

	o = p.done(quick("pipeline.yaml", "stages.train.steps=2")...)
	require.Empty(t, o.steps(t))
	requireTree(t, before, p.path("output"))
}

// changed returns when each file below a folder was last written.
func changed(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	out := map[string]time.Time{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		if err == nil {
			out[path] = info.ModTime()
		}
		return err
	}))
	return out
}
