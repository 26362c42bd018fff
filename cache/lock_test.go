package cache_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/cache"
)

func TestSecondOpenInProcess(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	_, err := cache.Open(t.Context(), dir, cache.Options{Wait: true})
	require.ErrorIs(t, err, cache.ErrOpen)
	if runtime.GOOS != "windows" {
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(dir, link))
		_, err = cache.Open(t.Context(), link, cache.Options{})
		require.ErrorIs(t, err, cache.ErrOpen, "through a symbolic link")
	}
	require.NoError(t, s.Close())
	open(t, dir)
}

func TestSecondProcess(t *testing.T) {
	dir := t.TempDir()
	other, _ := start(t, "hold", dir)

	_, err := cache.Open(t.Context(), dir, cache.Options{})
	var busy *cache.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, other.Process.Pid, busy.Holder.PID)
	require.Equal(t, "the other run", busy.Holder.Run)
	require.WithinDuration(t, time.Now(), busy.Holder.Started, time.Minute)
	require.ErrorContains(t, err, "the other run")

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = cache.Open(ctx, dir, cache.Options{Wait: true})
	require.ErrorIs(t, err, context.DeadlineExceeded)

	// Killed, it leaves its files behind, but no lock: whoever waits goes on.
	time.AfterFunc(50*time.Millisecond, func() { other.Process.Kill() })
	openWith(t, dir, cache.Options{Wait: true})
	require.Error(t, other.Wait())
}

func TestStaleLock(t *testing.T) {
	dir := t.TempDir()
	other, _ := start(t, "hold", dir)
	require.NoError(t, other.Process.Kill())
	other.Wait()
	_, err := os.Stat(filepath.Join(dir, "holder.json"))
	require.NoError(t, err, "the killed holder leaves its file")
	open(t, dir)
}

func TestExisting(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	_, err := cache.Open(t.Context(), dir, cache.Options{Existing: true})
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = os.Stat(dir)
	require.True(t, errors.Is(err, os.ErrNotExist), "nothing is made")
}
