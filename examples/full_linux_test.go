package examples_test

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A disk that is full at a save stops the run; the message says what to do, the
// checkpoint before it stays, and with room the same command goes on from there
// to the adapter of an undisturbed run.
func TestDiskFullAtASave(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	args := quick("pipeline.yaml", "stages.train.steps=10", "stages.checkpoint.every=1", "stages.checkpoint.keep=0")
	p.done(append(args, "--set", "output=./undisturbed")...)

	require.NoError(t, os.Mkdir(p.path("output"), 0o755))
	if err := syscall.Mount("tmpfs", p.path("output"), "tmpfs", 0, "size=1600k"); err != nil {
		t.Skip("a small file system cannot be mounted:", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(p.path("output"), syscall.MNT_DETACH)) })
	o := p.run(args...)
	require.Equal(t, 1, o.code, o.all())
	saved := o.events(t, "saved")
	require.NotEmpty(t, saved)
	last := int(saved[len(saved)-1].number("step"))
	require.Less(t, last, 10, "the disk never became full")
	for _, text := range []string{fmt.Sprintf("the checkpoint of step %d stays", last), "free some space", "run the same command again", p.path("output/quickstart")} {
		require.Contains(t, said(o), text)
	}
	for _, name := range names(tree(t, p.path("output"))) {
		require.NotContains(t, name, ".partial")
	}

	require.NoError(t, syscall.Mount("tmpfs", p.path("output"), "tmpfs", syscall.MS_REMOUNT, "size=64m"))
	o = p.done(args...)
	require.Equal(t, last+1, o.steps(t)[0])
	require.True(t, bytes.Equal(p.read("undisturbed/quickstart/quickstart.safetensors"), p.read(adapter)), "the adapter differs")
}
