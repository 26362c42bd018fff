package dataset

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/cache"
	"longship/pipeline"
	"longship/stages/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder makes a folder of files: contents by slash-separated path.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return dir
}

// picturePNG is a PNG of one colour; each shade is another content.
func picturePNG(w, h int, shade uint8) string {
	m := image.NewGray(image.Rect(0, 0, w, h))
	for i := range m.Pix {
		m.Pix[i] = shade
	}
	m.SetGray(0, 0, color.Gray{shade ^ 1})
	var b bytes.Buffer
	if err := png.Encode(&b, m); err != nil {
		panic(err)
	}
	return b.String()
}

// newStage makes a stage on a folder, and opens a cache for it.
func newStage(t testing.TB, dir string, change func(*Config)) (*stage, *cache.Store) {
	t.Helper()
	cfg := Default()
	cfg.Folder, cfg.Cache = pipeline.Path(dir), pipeline.Path(t.TempDir())
	if change != nil {
		change(cfg)
	}
	require.NoError(t, cfg.Validate())
	set := pipeline.Settings{ID: "photos", Log: hclog.NewNullLogger(), Env: &pipeline.Env{Name: "test", Dir: dir, Seed: 42}}
	s, err := Factory().New(set, cfg)
	require.NoError(t, err)
	store, err := cache.Open(context.Background(), string(cfg.Cache), cache.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return s.(*stage), store
}

// samplesOf runs all of the stage but its ports.
func samplesOf(t testing.TB, s *stage, store *cache.Store) ([]port.Sample, *finding) {
	t.Helper()
	found, err := s.find(context.Background(), store)
	require.NoError(t, err)
	return s.samples(found.pictures), found
}

// reasons are the faults by path below dir.
func reasons(t testing.TB, dir string, found *finding) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, f := range found.aside {
		rel, err := filepath.Rel(dir, f.path)
		require.NoError(t, err)
		out[shown(rel)] = f.err.Error()
	}
	return out
}

func ids(samples []port.Sample) (out []string) {
	for _, s := range samples {
		out = append(out, s.ID)
	}
	return out
}

func TestSamples(t *testing.T) {
	dir := folder(t, map[string]string{
		"b.PNG": picturePNG(64, 32, 10), "b.txt": "a beach \n",
		"a.png":               picturePNG(40, 40, 20),
		"sub/c.png":           picturePNG(32, 64, 30),
		"sub/c.TXT":           "[trigger] in a car",
		"notes.md":            "not an image",
		".d.png":              "hidden",
		".git/e.png":          "hidden",
		"_latent_cache/a.png": "a tool's",
		"output/cat/loss.png": picturePNG(64, 64, 40), "output/cat/state/lock": "",
		"output/cat.old-1/loss.png": picturePNG(64, 64, 41), "output/cat.old-1/state/cat_000000002.state": "",
	})
	s, store := newStage(t, dir, func(c *Config) {
		c.Resolution, c.TriggerWord, c.CaptionDropout = []int{32, 64}, "ohwx", 0.25
		c.DefaultCaption, c.NumRepeats, c.LossMultiplier, c.Alpha = "something", 3, 0.5, "white"
	})
	samples, found := samplesOf(t, s, store)
	require.Empty(t, found.aside)
	require.Equal(t, []string{
		"photos/a.png@32", "photos/a.png@64", "photos/b.PNG@32", "photos/b.PNG@64", "photos/sub/c.png@32", "photos/sub/c.png@64",
	}, ids(samples))
	require.Equal(t, "ohwx something", samples[0].Caption)
	require.Equal(t, "ohwx a beach", samples[2].Caption)
	require.Equal(t, "ohwx in a car", samples[4].Caption)
	b := samples[2]
	require.Equal(t, port.Sample{
		ID: "photos/b.PNG@32", Dataset: "photos", Path: []byte(filepath.Join(dir, "b.PNG")),
		Caption: "ohwx a beach", Dropout: 0.25, Dropped: "ohwx",
		Width: 64, Height: 32, Orientation: 1, Alpha: "white",
		Content: cache.HashBytes([]byte(picturePNG(64, 32, 10))), Resolution: 32, Bucket: port.Bucket{W: 32, H: 32},
		Repeats: 3, Weight: 0.5,
	}, b)
}

func TestDuplicatesAreNamedAndKept(t *testing.T) {
	dir := folder(t, map[string]string{"a.png": picturePNG(32, 32, 1), "b.png": picturePNG(32, 32, 2), "c.png": picturePNG(32, 32, 1)})
	s, store := newStage(t, dir, nil)
	samples, found := samplesOf(t, s, store)
	require.Len(t, samples, 3)
	require.Equal(t, []string{"a.png = c.png"}, duplicates(found.pictures))
}

func TestValidationCount(t *testing.T) {
	files := map[string]string{}
	for i := range 20 {
		files[string(rune('a'+i))+".png"] = picturePNG(32, 32, uint8(2*i))
	}
	dir := folder(t, files)
	held := func(n string, seed uint64) map[string]bool {
		s, store := newStage(t, dir, func(c *Config) {
			c.Validation, c.Resolution, c.CaptionDropout, c.NumRepeats, c.LossMultiplier = n, []int{32, 48}, 0.5, 4, 2
		})
		s.set.Env.Seed = seed
		samples, _ := samplesOf(t, s, store)
		out := map[string]bool{}
		for _, sample := range samples {
			if sample.Validation {
				out[string(sample.Path)] = true
				require.Equal(t, []any{0.0, 1, 1.0}, []any{sample.Dropout, sample.Repeats, sample.Weight})
			} else {
				require.Equal(t, []any{0.5, 4, 2.0}, []any{sample.Dropout, sample.Repeats, sample.Weight})
				require.NotContains(t, out, string(sample.Path), "one resolution is trained on and another is not")
			}
		}
		return out
	}
	five := held("5", 1)
	require.Len(t, five, 5)
	require.Equal(t, five, held("5", 1))
	require.NotEqual(t, five, held("5", 2))
	require.Subset(t, held("6", 1), five, "another image changes the others")
}

func TestValidationFolder(t *testing.T) {
	dir := folder(t, map[string]string{
		"a.png": picturePNG(32, 32, 1), "held/a.png": picturePNG(32, 32, 3), "held/sub/b.png": picturePNG(32, 32, 5), "held/sub/b.txt": "b",
	})
	s, store := newStage(t, dir, func(c *Config) { c.Validation = "held" })
	samples, _ := samplesOf(t, s, store)
	require.Equal(t, []string{"photos/a.png@512", "photos/validation:a.png@512", "photos/validation:sub/b.png@512"}, ids(samples))
	require.False(t, samples[0].Validation)
	require.True(t, samples[1].Validation && samples[2].Validation)
	require.Equal(t, "b", samples[2].Caption)
}

func TestReferences(t *testing.T) {
	dir := folder(t, map[string]string{
		"img/a.png": picturePNG(32, 32, 1), "img/sub/b.png": picturePNG(32, 32, 3), "img/c.png": picturePNG(32, 32, 5),
		"img/d.png": picturePNG(32, 32, 7), "img/e.png": picturePNG(32, 32, 9),
		"ref/a.png": picturePNG(100, 70, 11), "ref/sub/b.png": picturePNG(64, 64, 13), // in the same place
		"ref/d.png": picturePNG(63, 100, 15), "ref/e.png": picturePNG(600, 64, 17),
		"more/a.png": picturePNG(3000, 500, 19), "more/b.png": picturePNG(64, 80, 21), // right in the folder
		"more/d.png": picturePNG(64, 64, 23), "more/e.png": picturePNG(64, 64, 25),
	})
	img := filepath.Join(dir, "img")
	s, store := newStage(t, img, func(c *Config) {
		c.ControlPath = []pipeline.Path{pipeline.Path(filepath.Join(dir, "ref")), pipeline.Path(filepath.Join(dir, "more"))}
	})
	samples, found := samplesOf(t, s, store)
	require.Equal(t, []string{"photos/a.png@512", "photos/sub/b.png@512"}, ids(samples))
	a := samples[0].References
	require.Len(t, a, 2)
	require.Equal(t, port.Bucket{W: 96, H: 64}, a[0].Size)
	require.Equal(t, filepath.Join(dir, "ref", "a.png"), string(a[0].Path))
	require.Equal(t, cache.HashBytes([]byte(picturePNG(3000, 500, 19))), a[1].Content)
	require.Equal(t, port.Bucket{W: 2496, H: 416}, a[1].Size) // scaled to 2508 x 418
	require.Equal(t, filepath.Join(dir, "more", "b.png"), string(samples[1].References[1].Path))
	why := reasons(t, img, found)
	require.Contains(t, why["c.png"], "no reference image c.*")
	require.Contains(t, why["d.png"], "63x100")
	require.Contains(t, why["e.png"], "8 times")
	require.Len(t, why, 3)
}

func TestSecondRunReadsNoImage(t *testing.T) {
	dir := folder(t, map[string]string{"a.png": picturePNG(64, 48, 1), "b.png": picturePNG(48, 64, 3)})
	s, store := newStage(t, dir, nil)
	old := []os.FileInfo{}
	for _, name := range []string{"a.png", "b.png"} { // files of a moment ago are not remembered
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		require.NoError(t, err)
		old = append(old, info)
	}
	waitSettled(t, old)
	first, _ := samplesOf(t, s, store)
	for _, p := range first {
		info, err := store.File(context.Background(), string(p.Path))
		require.NoError(t, err)
		require.True(t, info.Known)
	}
	second, _ := samplesOf(t, s, store)
	require.Equal(t, first, second)
}

func TestNothingUsable(t *testing.T) {
	for name, c := range map[string]struct {
		files  map[string]string
		change func(*Config)
		says   []string
	}{
		"empty":         {nil, nil, []string{"no usable image in", "holds no files"}},
		"other files":   {map[string]string{"a.mp4": "x", "b.mp4": "x", "README": "x"}, nil, []string{"2 .mp4", "1 without an ending"}},
		"broken images": {map[string]string{"a.jpg": "x", "b.png": ""}, nil, []string{"2 unusable", "a.jpg (not an image", "b.png (the file is empty)"}},
		"all held":      {map[string]string{"a.png": picturePNG(32, 32, 1)}, func(c *Config) { c.Validation = "5" }, []string{"all 1 are held for validation"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, c.files)
			s, store := newStage(t, dir, c.change)
			found, err := s.find(context.Background(), store)
			require.NoError(t, err)
			err = found.usable(dir)
			require.Error(t, err)
			for _, text := range c.says {
				require.Contains(t, err.Error(), text)
			}
		})
	}
}

func TestMissingFolderIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	s, store := newStage(t, t.TempDir(), func(c *Config) { c.Folder = pipeline.Path(dir) })
	_, err := s.find(context.Background(), store)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, dir)
}

func TestStopping(t *testing.T) {
	dir := folder(t, map[string]string{"a.png": picturePNG(32, 32, 1)})
	s, store := newStage(t, dir, nil)
	stopped := make(chan struct{})
	close(stopped)
	r := reader{cfg: s.cfg, store: store, stopping: stopped, progress: func(int64, int64) {}}
	_, err := r.read(context.Background(), []found{{path: filepath.Join(dir, "a.png"), rel: "a.png"}})
	require.ErrorIs(t, err, errStopped)
}

func TestShown(t *testing.T) {
	require.Equal(t, "a/b c.png", shown(filepath.Join("a", "b c.png")))
	if filepath.Separator == '/' {
		require.Equal(t, `a\xff.png`, shown("a\xff.png"))
		require.Equal(t, `a\\xff.png`, shown(`a\xff.png`), "two names look alike")
	}
}

func TestConfigFaults(t *testing.T) {
	cfg := Default()
	cfg.Resolution, cfg.CaptionExt, cfg.CaptionDropout, cfg.NumRepeats = []int{8, 512, 512}, ".", 1.5, 0
	cfg.LossMultiplier, cfg.Alpha, cfg.ControlPath, cfg.Validation, cfg.Cache = -1, "pink", []pipeline.Path{""}, "-2", ""
	err := cfg.Validate()
	require.Error(t, err)
	for _, key := range []string{
		"folder", "resolution", "caption_ext", "caption_dropout_rate", "num_repeats", "loss_multiplier", "alpha", "control_path[0]", "validation", "cache",
	} {
		require.Contains(t, "\n"+err.Error(), "\n"+key+": ")
	}
	require.Equal(t, 2, strings.Count("\n"+err.Error(), "\nresolution: "))
}
