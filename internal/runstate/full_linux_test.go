package runstate

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/tensor"
	"longship/stages/port"
)

// tmpfs mounts a small disk, or skips where the test may not.
func tmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	return dir
}

// bigState is a state of about 1 MB.
func bigState(step int) *port.State {
	st := stateAt(step)
	for i := range st.Params {
		st.Params[i].Optimizer["v"] = f32([]int{1 << 16}, float32(step))
	}
	return st
}

func TestDiskFull(t *testing.T) {
	f := In(tmpfs(t, "2m"), "cat")
	var err error
	step := 0
	for err == nil && step < 10 {
		step++
		_, err = f.Save(t.Context(), bf16(0), bigState(step))
	}
	require.Greater(t, step, 1)
	require.ErrorContains(t, err, "too little disk space")
	requireLastGood(t, f, step, err)
}

// The disk may fill up while a file is being written, whatever was free before.
func TestDiskFullWhileWriting(t *testing.T) {
	dir := tmpfs(t, "4m")
	f := In(dir, "cat")
	_, err := f.Save(t.Context(), bf16(0), bigState(1))
	require.NoError(t, err)
	st := bigState(2)
	st.Memory = filler{path: filepath.Join(dir, "filler")}
	_, err = f.Save(t.Context(), bf16(0), st)
	require.ErrorIs(t, err, syscall.ENOSPC)
	requireLastGood(t, f, 2, err)
}

func requireLastGood(t *testing.T, f Folder, failed int, err error) {
	t.Helper()
	require.ErrorContains(t, err, "free some space")
	c, ignored := newest(t, f)
	require.Equal(t, failed-1, c.Step)
	require.ErrorContains(t, err, "the checkpoint of step")
	require.Empty(t, ignored, "nothing is left of the failed save")
}

// filler fills the disk when the first tensor is read.
type filler struct{ path string }

func (w filler) Read(_ context.Context, t tensor.Tensor, dst []byte) error {
	copy(dst, t.Region().Bytes())
	os.WriteFile(w.path, make([]byte, 8<<20), 0o644) // as much as fits
	return nil
}

func (w filler) Write(context.Context, tensor.Tensor, []byte) error { return nil }
