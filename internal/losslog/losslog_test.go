package losslog

import (
	"image/png"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func steps(l *Log) (out []int) {
	for _, e := range l.Entries() {
		out = append(out, e.Step)
	}
	return out
}

func TestResumedRunReplacesWhatItRepeats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "loss.jsonl")
	l, err := Open(path)
	require.NoError(t, err)
	for i := 1; i <= 5; i++ {
		require.NoError(t, l.Add(Entry{Event: "step", Step: i, Loss: Finite(1 / float64(i))}))
	}
	again, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3, 4, 5}, steps(again))
	require.NoError(t, again.Add(Entry{Event: "step", Step: 4, Loss: Finite(9)}))
	require.NoError(t, again.Add(Entry{Event: "step", Step: 5, Loss: Finite(math.NaN())}))
	last, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3, 4, 5}, steps(last))
	require.Equal(t, 9.0, *last.Entries()[3].Loss)
	require.Nil(t, last.Entries()[4].Loss)
}

func TestValidationOfTheResumedStepStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "loss.jsonl")
	l, _ := Open(path)
	require.NoError(t, l.Add(Entry{Event: "validation", Step: 0, Loss: Finite(2), Zero: Finite(3)}))
	require.NoError(t, l.Add(Entry{Event: "step", Step: 1, Loss: Finite(1)}))
	l, _ = Open(path)
	require.NoError(t, l.Add(Entry{Event: "step", Step: 2, Loss: Finite(1)}))
	require.Equal(t, []int{0, 1, 2}, steps(l))
}

func TestTornLastLineIsDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "loss.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{\"event\":\"step\",\"step\":1,\"loss\":2}\n{\"event\":\"st"), 0o644))
	l, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, []int{1}, steps(l))
}

func TestDraw(t *testing.T) {
	dir := t.TempDir()
	l, _ := Open(filepath.Join(dir, "loss.jsonl"))
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
