package cache_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/cache"
)

// settle waits until the file system's clock has moved on, so that files
// written before are remembered.
func settle() { time.Sleep(80 * time.Millisecond) }

func TestFile(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	path := filepath.Join(dir, "photo.png")
	write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o644)); settle() }
	cacheDir := t.TempDir()
	s := open(t, cacheDir)
	ask := func(wantKnown bool, text string) {
		t.Helper()
		info, err := s.File(ctx, path)
		require.NoError(t, err)
		require.Equal(t, wantKnown, info.Known)
		require.Equal(t, cache.HashBytes([]byte(text)), info.Content)
		require.EqualValues(t, len(text), info.Size)
	}
	write("one")
	ask(false, "one")
	ask(true, "one")
	require.NoError(t, s.Close())
	s = open(t, cacheDir)
	ask(true, "one")

	write("two")
	ask(false, "two")
	ask(true, "two")

	// Replaced by another file of the same size, with the old times put back.
	old, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".new", []byte("six"), 0o644))
	require.NoError(t, os.Chtimes(path+".new", old.ModTime(), old.ModTime()))
	require.NoError(t, os.Rename(path+".new", path))
	settle()
	if runtime.GOOS != "windows" {
		ask(false, "six")
	}

	// Overwritten in place, with the old times put back.
	write("ten")
	require.NoError(t, os.Chtimes(path, old.ModTime(), old.ModTime()))
	settle()
	if runtime.GOOS != "windows" {
		ask(false, "ten")
	}

	require.NoError(t, s.Close())
	s = openWith(t, cacheDir, cache.Options{Rehash: true})
	ask(false, "ten")
}

// A file written a moment ago may be written again within the same tick of the
// clock, so it is not remembered yet.
func TestFreshFileIsNotRemembered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fresh")
	s := open(t, t.TempDir())
	require.NoError(t, os.WriteFile(path, []byte("one"), 0o644))
	_, err := s.File(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte("two"), 0o644))
	info, err := s.File(t.Context(), path)
	require.NoError(t, err)
	require.Equal(t, cache.HashBytes([]byte("two")), info.Content)
}

// A file whose time lies in the future, as a camera with a wrong clock makes
// them, is remembered all the same: its ctime tells of changes.
func TestTimeInTheFuture(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no ctime")
	}
	path := filepath.Join(t.TempDir(), "photo")
	later := time.Now().Add(1000 * time.Hour)
	require.NoError(t, os.WriteFile(path, []byte("one"), 0o644))
	require.NoError(t, os.Chtimes(path, later, later))
	settle()
	s := open(t, t.TempDir())
	for _, known := range []bool{false, true} {
		info, err := s.File(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, known, info.Known)
	}
	require.NoError(t, os.WriteFile(path, []byte("two"), 0o644))
	require.NoError(t, os.Chtimes(path, later, later))
	info, err := s.File(t.Context(), path)
	require.NoError(t, err)
	require.Equal(t, cache.HashBytes([]byte("two")), info.Content)
}

func TestFileErrors(t *testing.T) {
	s := open(t, t.TempDir())
	_, err := s.File(t.Context(), filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = s.File(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "no regular file")
}

// knownFiles makes n small files and lets the cache know them.
func knownFiles(t testing.TB, s *cache.Store, n int) []string {
	dir := t.TempDir()
	paths := make([]string, n)
	for i := range paths {
		paths[i] = filepath.Join(dir, fmt.Sprintf("%06d.png", i))
		require.NoError(t, os.WriteFile(paths[i], fmt.Append(nil, i), 0o644))
	}
	settle()
	for _, p := range paths {
		_, err := s.File(t.Context(), p)
		require.NoError(t, err)
	}
	return paths
}

func TestManyKnownFiles(t *testing.T) {
	n := 2000
	if long() {
		n = 100_000
	}
	s := open(t, t.TempDir())
	paths := knownFiles(t, s, n)
	start := time.Now()
	for _, p := range paths {
		info, err := s.File(t.Context(), p)
		require.NoError(t, err)
		require.True(t, info.Known)
	}
	took := time.Since(start)
	t.Logf("%d known files in %v", n, took)
	require.Less(t, took, 10*time.Second*time.Duration(n)/100_000+time.Second)
}
