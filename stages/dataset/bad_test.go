//go:build linux

package dataset

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBadInput: a folder of everything that goes wrong ends with what is usable
// and a reason for each of the others.
func TestBadInput(t *testing.T) {
	good := picturePNG(64, 64, 1)
	dir := folder(t, map[string]string{
		"good.png":              good,
		"truncated.png":         good[:20],
		"truncated-later.png":   good[:len(good)-20], // found when it is decoded
		"zero.jpg":              "",
		"huge.png":              picturePNG(20000, 10, 3),
		"1x1.png":               picturePNG(1, 1, 5),
		"text.jpg":              "this is no image, whatever its name says",
		"folder.jpg/inside.png": picturePNG(32, 32, 7),
		"pipe-caption.png":      picturePNG(32, 32, 9),
		"bytes-\xff.png":        picturePNG(32, 32, 11),
		"bytes-\xff.txt":        "a caption",
		"sub/good.png":          picturePNG(32, 32, 13),
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.Symlink("gone.jpg", at("dangling.jpg")))
	require.NoError(t, os.Symlink("loop.jpg", at("loop.jpg")))
	require.NoError(t, os.Symlink("..", at("sub/up")))                       // a circle
	require.NoError(t, os.Symlink(filepath.Join(dir, "sub"), at("z-again"))) // a folder met before
	require.NoError(t, os.Symlink("good.png", at("link.png")))
	require.NoError(t, syscall.Mkfifo(at("pipe.jpg"), 0o644))
	require.NoError(t, os.Symlink("pipe.jpg", at("to-pipe.jpg")))
	require.NoError(t, syscall.Mkfifo(at("pipe-caption.txt"), 0o644))

	s, store := newStage(t, dir, nil)
	samples, found := samplesOf(t, s, store)
	require.Equal(t, []string{
		`photos/bytes-\xff.png@512`, "photos/folder.jpg/inside.png@512", "photos/good.png@512", "photos/link.png@512",
		"photos/sub/good.png@512", "photos/truncated-later.png@512",
	}, ids(samples))
	require.Equal(t, at("bytes-\xff.png"), string(samples[0].Path))
	require.Equal(t, "a caption", samples[0].Caption)

	got := reasons(t, dir, found)
	want := map[string]string{
		"truncated.png":    "truncated",
		"zero.jpg":         "the file is empty",
		"huge.png":         "20000x10: the shorter side has 10 pixels",
		"1x1.png":          "1x1: the shorter side has 1 pixels",
		"text.jpg":         "not an image",
		"folder.jpg":       "is a folder",
		"dangling.jpg":     "link to gone.jpg",
		"loop.jpg":         "link to loop.jpg",
		"pipe.jpg":         "is a named pipe",
		"to-pipe.jpg":      "is a named pipe",
		"pipe-caption.png": "is a named pipe",
	}
	for name, reason := range want {
		require.Contains(t, got[name], reason, name)
	}
	require.Len(t, got, len(want))
}

// TestReplacementWithOldTimes: another image under the same name, of the same
// size and modification time, is another image.
func TestReplacementWithOldTimes(t *testing.T) {
	dir := folder(t, map[string]string{"a.png": picturePNG(64, 48, 1)})
	s, store := newStage(t, dir, nil)
	path := filepath.Join(dir, "a.png")
	info, err := os.Stat(path)
	require.NoError(t, err)
	waitSettled(t, []os.FileInfo{info})
	first, _ := samplesOf(t, s, store)
	other := picturePNG(64, 48, 5)
	require.EqualValues(t, info.Size(), len(other))
	require.NoError(t, os.WriteFile(path, []byte(other), 0o644))
	require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	second, _ := samplesOf(t, s, store)
	require.NotEqual(t, first[0].Content, second[0].Content)
}
