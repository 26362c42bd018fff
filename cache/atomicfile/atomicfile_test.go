package atomicfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/cache/atomicfile"
)

func names(t *testing.T, dir string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	require.NoError(t, os.WriteFile(path+atomicfile.Partial, []byte("left by a process that was killed"), 0o644))
	require.NoError(t, atomicfile.WriteBytes(path, []byte("one")))
	require.Equal(t, "one", content(t, path))

	// While it is written, and after a failure, the old file is the one that is there.
	cause := errors.New("disk on fire")
	err := atomicfile.Write(path, func(f *os.File) error {
		_, err := f.WriteString("two")
		require.NoError(t, err)
		require.Equal(t, "one", content(t, path))
		return cause
	})
	require.ErrorIs(t, err, cause)
	require.ErrorContains(t, err, "a.txt")
	require.Equal(t, "one", content(t, path))
	require.Equal(t, []string{"a.txt"}, names(t, dir))

	require.NoError(t, atomicfile.Write(path, func(f *os.File) error {
		_, err := f.WriteAt([]byte("2"), 1)
		return err
	}))
	require.Equal(t, "\x002", content(t, path))
	require.Equal(t, []string{"a.txt"}, names(t, dir))
}

// A path that cannot be replaced leaves nothing beside it.
func TestRenameFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "folder")
	require.NoError(t, os.MkdirAll(filepath.Join(path, "inside"), 0o755))
	require.Error(t, atomicfile.WriteBytes(path, nil))
	require.Equal(t, []string{"folder"}, names(t, dir))
	require.Error(t, atomicfile.WriteBytes(filepath.Join(dir, "none", "a"), nil))
}
