package cache_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/cache"
)

// A full disk is an error of Put; what is there can be read, and room that is
// made can be used. (Badger writes through memory maps, where a full disk would
// end the process.)
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m"); err != nil {
		t.Skipf("cannot mount a small disk: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 8<<20), 0o644))

	const size = 1 << 20
	s := open(t, filepath.Join(dir, "cache"))
	var err error
	n := 0
	for ; err == nil; n++ {
		err = s.Put(t.Context(), ref(n, size), blob(t, size))
	}
	require.ErrorIs(t, err, cache.ErrFull)
	require.ErrorContains(t, err, "free some space")
	require.Greater(t, n, 10)
	for i := range n {
		require.Equal(t, i < n-1, s.Has(t.Context(), ref(i, size)))
	}
	require.NoError(t, s.Close())
	s = open(t, filepath.Join(dir, "cache"))
	require.True(t, s.Has(t.Context(), ref(0, size)))
	require.NoError(t, os.Remove(ballast))
	require.NoError(t, syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"))
	require.NoError(t, s.Put(t.Context(), ref(n, size), blob(t, size)))
	require.NoError(t, s.Close())
	s = open(t, filepath.Join(dir, "cache"))
	require.True(t, s.Has(t.Context(), ref(n, size)))
	require.NoError(t, s.Close())
}
