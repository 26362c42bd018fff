package examples_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// encoded returns how many latents and text embeddings a run encoded.
func encoded(t testing.TB, o outcome) (latents, texts int) {
	s := o.summary(t)
	return int(s.number("latents.latents encoded")), int(s.number("textembed.text embeddings encoded"))
}

// short is a run of one step over few photos, for tests of what comes before.
func short(p *project) func(more ...string) outcome {
	for _, name := range []string{"astronaut", "brick", "cat", "galaxies", "grass", "gravel", "raccoon", "retina"} {
		for _, ext := range []string{".jpg", ".txt"} {
			require.NoError(p.t, os.Remove(p.path("photos/"+name+ext)))
		}
	}
	return func(more ...string) outcome {
		settings := append([]string{"stages.train.steps=1", "stages.dataset.validation=0", "stages.dataset.resolution=[128]"}, more...)
		return p.run(append(quick("pipeline.yaml", settings...), "--restart")...)
	}
}

// What is known is not encoded again; what is new under an old name is.
func TestCacheKnowsContents(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	run := short(p)
	again := func(wantLatents, wantTexts int, why string) {
		t.Helper()
		o := run()
		require.Equal(t, 0, o.code, o.all())
		latents, texts := encoded(t, o)
		require.Equal(t, wantLatents, latents, why)
		require.Equal(t, wantTexts, texts, why)
	}
	replace := func(name, by string) {
		t.Helper()
		old, content := p.read(name), p.read(by)
		require.Less(t, len(content), len(old))
		content = append(content, make([]byte, len(old)-len(content))...) // behind the end of the picture
		require.NoError(t, os.WriteFile(p.path(name), content, 0o644))
	}
	again(4, 4, "the first run encodes all")
	again(0, 0, "nothing has changed")

	replace("photos/photographer.jpg", "photos/rocket.jpg")
	again(1, 0, "another picture of the same name and size")

	info, err := os.Stat(p.path("photos/stairs.jpg"))
	require.NoError(t, err)
	if runtime.GOOS == "linux" || runtime.GOOS == "darwin" {
		replace("photos/stairs.jpg", "photos/coffee.jpg")
		require.NoError(t, os.Chtimes(p.path("photos/stairs.jpg"), info.ModTime(), info.ModTime()))
		again(1, 0, "another picture of the same name, size and time")
	}

	for _, ext := range []string{".jpg", ".txt"} {
		require.NoError(t, os.Rename(p.path("photos/coffee"+ext), p.path("photos/espresso"+ext)))
	}
	again(0, 0, "a renamed picture")

	require.NoError(t, os.Rename(p.path("photos"), p.path("elsewhere")))
	o := run("stages.dataset.folder=elsewhere")
	require.Equal(t, 0, o.code, o.all())
	latents, texts := encoded(t, o)
	require.Zero(t, latents+texts, "a renamed folder")

	require.NoError(t, os.Rename(p.path("elsewhere"), p.path("photos")))
	p.write("photos/espresso.txt", "a cup")
	again(0, 1, "another caption")
	again(0, 0, "nothing has changed")
	o = run("stages.textembed.qtype=bf16", "stages.latents.resize=lanczos")
	latents, texts = encoded(t, o)
	require.Equal(t, []int{4, 4}, []int{latents, texts}, "what decides a value has changed")
}

// flip changes a byte of a file.
func flip(t testing.TB, path string, at int) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[at] ^= 0x41
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

// A damaged tensor is found, named and made again, and the result is that of a
// whole one.
func TestDamagedTensor(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	run := short(p)
	o := run()
	require.Equal(t, 0, o.code, o.all())
	want := p.read(adapter)
	list := p.done("cache", "ls", "--json", "cache")
	keys := map[string]string{} // of one tensor of each kind, large enough for a value log
	for line := range strings.Lines(list.stdout) {
		var e struct {
			Key   string
			Shape []int
		}
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		switch {
		case len(e.Shape) == 3 && e.Shape[1]*e.Shape[2] >= 64:
			keys["latent"] = e.Key
		case len(e.Shape) == 2:
			keys["text"] = e.Key
		}
	}
	require.Len(t, keys, 2, list.stdout)
	for kind, key := range keys {
		t.Run(kind, func(t *testing.T) {
			path, at := valueOf(t, p.path("cache/badger"), key)
			flip(t, path, at)
			o := run()
			require.Equal(t, 0, o.code, o.all())
			latents, texts := encoded(t, o)
			require.Equal(t, 1, latents+texts, o.all())
			require.True(t, o.logged("damaged", key[:16]), o.stderr)
			require.True(t, bytes.Equal(want, p.read(adapter)), "the adapter differs")
		})
	}
	verify := p.run("cache", "verify", "cache")
	require.Equal(t, 0, verify.code, verify.all())
	path, at := valueOf(t, p.path("cache/badger"), keys["text"])
	flip(t, path, at)
	verify = p.run("cache", "verify", "cache")
	require.Equal(t, 1, verify.code, verify.all())
	require.Contains(t, verify.stdout, keys["text"][:16])
	gc := p.done("cache", "gc", "cache")
	require.Contains(t, gc.stdout, "removed")
	o = run()
	latents, texts := encoded(t, o)
	require.Positive(t, latents+texts, o.all())
	require.True(t, bytes.Equal(want, p.read(adapter)), "the adapter differs")
}

// valueOf finds a byte in the newest value that a value log holds for a key.
func valueOf(t testing.TB, dir, key string) (path string, at int) {
	t.Helper()
	var raw []byte
	_, err := fmt.Sscanf(key, "%x", &raw)
	require.NoError(t, err)
	logs, err := filepath.Glob(filepath.Join(dir, "*.vlog"))
	require.NoError(t, err)
	for _, log := range logs {
		b, err := os.ReadFile(log)
		require.NoError(t, err)
		if i := bytes.LastIndex(b, raw); i >= 0 && i+len(raw)+2000 < len(b) {
			path, at = log, i+len(raw)+1000
		}
	}
	require.NotEmpty(t, path, "tensor %s is in no value log", key)
	return path, at
}

// A flipped byte anywhere in the cache's folder never makes a wrong adapter,
// and never stops a run.
func TestDamagedCacheFolder(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	run := short(p)
	o := run()
	require.Equal(t, 0, o.code, o.all())
	want := p.read(adapter)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 2))
	rounds := 1
	if os.Getenv("LONGSHIP_LONG") != "" {
		rounds = 25
	}
	seen := map[string]int{}
	for range rounds {
		files := tree(t, p.path("cache"))
		for name, content := range files {
			path := p.path("cache/" + name)
			if info, err := os.Stat(path); err != nil || info.Size() == 0 || strings.Contains(name, ".damaged-") {
				continue // set aside or rewritten by a run before
			} else if size := int(info.Size()); size < len(content) || name != "badger/DISCARD" {
				flip(t, path, random.IntN(size))
			} else {
				flip(t, path, random.IntN(64)) // all behind is empty
			}
			o := run()
			require.Equal(t, 0, o.code, "%s: %s", name, o.all())
			require.True(t, bytes.Equal(want, p.read(adapter)), "%s: the adapter differs", name)
			kind := strings.TrimLeft(filepath.Base(name), "0123456789abcdef")
			seen[kind]++
		}
	}
	t.Logf("flipped: %v", seen)
	require.GreaterOrEqual(t, len(seen), 5)
	o = run()
	latents, texts := encoded(t, o)
	require.Zero(t, latents+texts, "the mended cache is not used")
}
