package quantize

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"longship/cache"
	"longship/internal/golden"
	"longship/internal/weights"
	"longship/pipeline/stagetest"
)

// A disk without room is an error that says what to do, before the first unit
// is made, and leaves no file behind.
func TestDiskFull(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, 0)) })
	model, err := weights.OpenTransformer(golden.Path("tiny-hd128"))
	require.NoError(t, err)
	defer model.Close()
	store, err := cache.Open(context.Background(), t.TempDir(), cache.Options{})
	require.NoError(t, err)
	defer store.Close()
	f := &file{model: model, store: store, env: stagetest.Env(t), qtype: "bf16", outer: "bf16", log: hclog.NewNullLogger()}
	source, err := f.source(context.Background())
	require.NoError(t, err)
	path := filepath.Join(disk, "x")
	require.ErrorContains(t, f.make(context.Background(), path, source), wayOut)
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Empty(t, left)
}
