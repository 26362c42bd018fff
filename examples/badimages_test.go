//go:build unix

package examples_test

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func picture(t testing.TB, w, h int) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))))
	return b.String()
}

// badImages puts everything that goes wrong beside the photos, and returns what
// the run is to say of each.
func badImages(t *testing.T, p *project) map[string]string {
	t.Helper()
	cat := string(p.read("photos/cat.jpg"))
	p.write("photos/cut-early.jpg", cat[:100])
	p.write("photos/cut-late.jpg", cat[:len(cat)/2])
	p.write("photos/empty.jpg", "")
	p.write("photos/long.png", picture(t, 20000, 10))
	p.write("photos/dot.png", picture(t, 1, 1))
	p.write("photos/text.jpg", "no picture, whatever the name says")
	require.NoError(t, os.Symlink("nowhere.jpg", p.path("photos/dangling.jpg")))
	require.NoError(t, syscall.Mkfifo(p.path("photos/pipe.jpg"), 0o644))
	require.NoError(t, os.Mkdir(p.path("photos/folder.jpg"), 0o755))
	return map[string]string{
		"cut-early.jpg": "truncated",
		"cut-late.jpg":  "truncated",
		"empty.jpg":     "empty",
		"long.png":      "20000x10",
		"dot.png":       "1x1",
		"text.jpg":      "not an image",
		"dangling.jpg":  "nowhere.jpg",
		"pipe.jpg":      "named pipe",
		"folder.jpg":    "folder",
	}
}

// A folder of images with everything wrong in it is trained on as far as it can
// be, and the summary says of each other file why not.
func TestBadImages(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	want := badImages(t, p)
	named := p.path("photos/not-utf8-\xff\xfe.png")
	odd := os.WriteFile(named, []byte(picture(t, 100, 80)), 0o644) == nil // not every file system takes it

	args := quick("pipeline.yaml", "stages.train.steps=2")
	args = append(args[:2:2], args[3:]...) // without --json
	o := p.done(args...)
	_, aside, found := strings.Cut(o.stdout, "set aside: ")
	require.True(t, found, o.all())
	for name, reason := range want {
		row := ""
		for line := range strings.Lines(aside) {
			if strings.Contains(line, name) {
				row = line
			}
		}
		require.Contains(t, row, reason, "%s: %s", name, aside)
	}
	require.FileExists(t, p.path(adapter))

	again := p.done(append(quick("pipeline.yaml", "stages.train.steps=2"), "--restart")...)
	s := again.summary(t)
	require.Len(t, s["set_aside"], len(want))
	photos, err := filepath.Glob("quickstart/photos/*.jpg")
	require.NoError(t, err)
	images := float64(len(photos))
	if odd {
		images++
	}
	usable := s.number("dataset.images used") + s.number("dataset.images for validation")
	require.Equal(t, images+1, usable, "cut-late.jpg is found when it is decoded")
	require.Equal(t, images, s.number("latents.latents found in the cache"))
}

// A folder that holds nothing usable ends the run with what it does hold.
func TestNothingUsable(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	require.NoError(t, os.Rename(p.path("photos"), p.path("good")))
	for name, make := range map[string]func(){
		"no usable image":  func() { p.write("photos/a.jpg", ""); p.write("photos/notes.md", "x") },
		"holds no files":   func() {},
		"none is left":     func() { copyAll(t, p.path("good/cat.jpg"), p.path("photos/cat.jpg")) },
		"none of the 1 im": func() { p.write("photos/cat.jpg", string(p.read("good/cat.jpg")[:9000])) },
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.RemoveAll(p.path("photos")))
			require.NoError(t, os.Mkdir(p.path("photos"), 0o755))
			make()
			settings := []string{"name=nothing"}
			if name != "none is left" {
				settings = append(settings, "stages.dataset.validation=0")
			}
			o := p.run(quick("pipeline.yaml", settings...)...)
			require.Contains(t, []int{1, 2}, o.code, o.all()) // 2 where names alone show it
			require.Contains(t, said(o), name)
			require.Contains(t, said(o), "photos")
		})
	}
}
