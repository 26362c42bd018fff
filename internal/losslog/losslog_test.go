package losslog

import (
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, path string) (steps []int, entries []Entry) {
	t.Helper()
	entries, err := Read(path)
	require.NoError(t, err)
	for _, e := range entries {
		steps = append(steps, e.Step)
	}
	return steps, entries
}

func TestResumedRunReplacesWhatItRepeats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "loss.jsonl")
	l := New(path)
	again := New(path) // nothing is read before the run is its own
	for i := 1; i <= 5; i++ {
		require.NoError(t, l.Add(Entry{Event: "step", Step: i, Loss: Finite(1 / float64(i))}))
	}
	require.NoError(t, l.Add(Entry{Event: "validation", Step: 4, Loss: Finite(1)}))
	require.NoError(t, again.Add(Entry{Event: "step", Step: 4, Loss: Finite(9)}))
	require.NoError(t, again.Add(Entry{Event: "step", Step: 5, Loss: Finite(math.NaN())}))
	steps, last := read(t, path)
	require.Equal(t, []int{1, 2, 3, 4, 5}, steps)
	require.Equal(t, 9.0, *last[3].Loss)
	require.Nil(t, last[4].Loss)
}

func TestValidationOfTheResumedStepStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "loss.jsonl")
	l := New(path)
	require.NoError(t, l.Add(Entry{Event: "step", Step: 1, Loss: Finite(1)}))
	require.NoError(t, l.Add(Entry{Event: "validation", Step: 1, Loss: Finite(2), Zero: Finite(3)}))
	require.NoError(t, New(path).Add(Entry{Event: "step", Step: 2, Loss: Finite(1)}))
	steps, _ := read(t, path)
	require.Equal(t, []int{1, 1, 2}, steps)
}

func TestTornLineIsDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "loss.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{\"event\":\"step\",\"step\":1,\"loss\":2}\n{\"event\":\"st"), 0o644))
	steps, _ := read(t, path)
	require.Equal(t, []int{1}, steps)
	require.NoError(t, New(path).Add(Entry{Event: "step", Step: 2}))
	steps, _ = read(t, path)
	require.Equal(t, []int{1, 2}, steps)
}

// What could not be written is written with the next entry that can.
func TestAfterAnError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	l := New(filepath.Join(dir, "loss.jsonl"))
	require.NoError(t, l.Add(Entry{Event: "step", Step: 1}))
	require.NoError(t, os.Rename(dir, dir+".away"))
	require.NoError(t, os.WriteFile(dir, nil, 0o644))
	require.ErrorContains(t, l.Add(Entry{Event: "step", Step: 2}), "loss log: ")
	require.Error(t, l.Add(Entry{Event: "step", Step: 3}))
	require.NoError(t, os.Remove(dir))
	require.NoError(t, l.Add(Entry{Event: "step", Step: 4}))
	steps, _ := read(t, l.path)
	require.Equal(t, []int{1, 2, 3, 4}, steps)
}

func TestDraw(t *testing.T) {
	dir := t.TempDir()
	l := New(filepath.Join(dir, "loss.jsonl"))
	require.NoError(t, l.Add(Entry{Event: "validation", Step: 0, Loss: Finite(3), Zero: Finite(2)}))
	for i := 1; i < 50; i++ {
		require.NoError(t, l.Add(Entry{Event: "step", Step: i, Loss: Finite(3 - float64(i)/30)}))
	}
	out := filepath.Join(dir, "loss.png")
	require.NoError(t, l.Draw(out, "test"))
	f, err := os.Open(out)
	require.NoError(t, err)
	defer f.Close()
	img, err := png.Decode(f)
	require.NoError(t, err)
	require.Greater(t, img.Bounds().Dx(), 600)
}
