package folderlock_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"

	"longship/cache/folderlock"
)

// Two processes are tried where folders are locked: in cache and in internal/runstate.

func TestTake(t *testing.T) {
	dir := t.TempDir()
	opt := folderlock.Options{What: "cache", Way: "wait", Run: "mine"}
	lock, err := folderlock.Take(t.Context(), dir, opt)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, folderlock.HolderName))
	_, err = folderlock.Take(t.Context(), dir, opt)
	require.ErrorIs(t, err, folderlock.ErrHeldHere)
	require.NoError(t, lock.Release())
	require.NoFileExists(t, filepath.Join(dir, folderlock.HolderName))

	// What a killed process leaves behind blocks nobody.
	require.NoError(t, os.WriteFile(filepath.Join(dir, folderlock.HolderName), []byte(`{"pid":1}`), 0o644))
	lock, err = folderlock.Take(t.Context(), dir, opt)
	require.NoError(t, err)
	require.NoError(t, lock.Release())
}

// Who asks while a holder has just come, and has not said who it is yet, is told
// all the same.
func TestHolderIsAboutToSayWhoItIs(t *testing.T) {
	dir := t.TempDir()
	other := flock.New(filepath.Join(dir, folderlock.LockName))
	require.NoError(t, other.Lock())
	defer other.Unlock()
	time.AfterFunc(20*time.Millisecond, func() {
		os.WriteFile(filepath.Join(dir, folderlock.HolderName), []byte(`{"pid":7,"run":"cat"}`), 0o644)
	})
	_, err := folderlock.Take(t.Context(), dir, folderlock.Options{What: "cache"})
	var busy *folderlock.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, 7, busy.Holder.PID)
}

func TestMissingFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for range 2 { // a failed Take holds nothing
		_, err := folderlock.Take(t.Context(), dir, folderlock.Options{What: "cache"})
		require.ErrorContains(t, err, "lock cache "+dir)
	}
}

func TestBusyError(t *testing.T) {
	busy := &folderlock.BusyError{What: "cache", Dir: "/c", Way: "wait for it with --wait"}
	require.EqualError(t, busy, "cache /c is in use by another process; wait for it with --wait")
	busy.Holder = folderlock.Holder{PID: 7, Run: "cat", Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	require.EqualError(t, busy, `cache /c is in use by process 7 (run "cat", started 2026-01-02 03:04:05); wait for it with --wait`)
}

func TestWritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	require.NoError(t, folderlock.Writable(dir))
	require.NoError(t, folderlock.Writable(filepath.Join(dir, "to", "be", "made")))
	require.ErrorContains(t, folderlock.Writable(file), "is a file")
	require.Error(t, folderlock.Writable(filepath.Join(file, "below")))
	require.NoDirExists(t, filepath.Join(dir, "to"))
}
