package textembed

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/cache"
	"longship/gpu/cpu"
	"longship/internal/dtype"
	"longship/internal/embedding"
	"longship/internal/golden"
	"longship/pipeline/stagetest"
	"longship/stages/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// embed sends samples through the stage, whose YAML config is cfg.
func embed(t testing.TB, dir, model, cfg string, samples ...port.Sample) ([]port.Sample, *stagetest.Outcome) {
	t.Helper()
	got, o := embedOn(t, "cpu", dir, golden.Path(model), cfg, samples...)
	require.NoError(t, o.Err)
	return got, o
}

func embedOn(t testing.TB, device, dir, model, cfg string, samples ...port.Sample) ([]port.Sample, *stagetest.Outcome) {
	t.Helper()
	got := stagetest.Collect[port.Sample]("encoded")
	o := stagetest.Try(t, Factory(), cfg, stagetest.Dir(dir),
		stagetest.Head("device: "+device), stagetest.Head("model: {path: "+model+"}"),
		stagetest.Feed("samples", samples...), got)
	return got.Values, o
}

func samplesOf(captions ...string) (list []port.Sample) {
	for i, c := range captions {
		list = append(list, port.Sample{ID: fmt.Sprint(i), Caption: c})
	}
	return list
}

// read returns the whole of an embedding from a cache folder.
func read(t testing.TB, dir string, ref cache.Ref) []float32 {
	t.Helper()
	store, err := cache.Open(t.Context(), dir, cache.Options{})
	require.NoError(t, err)
	defer store.Close()
	raw, err := store.Get(t.Context(), ref, nil)
	require.NoError(t, err)
	rows := make([]float32, len(raw)/2)
	if ref.DType == "f32" {
		rows = append([]float32(nil), dtype.View[float32](raw)...)
	} else {
		dtype.BF16ToF32(rows, dtype.View[uint16](raw))
	}
	whole := make([]float32, ref.Shape[0]*ref.Shape[1])
	require.NoError(t, embedding.Expand(whole, rows, ref.Shape[1]))
	return whole
}

func TestConformance(t *testing.T) { stagetest.Conformance(t, Factory(), "") }

func TestEmbeddingsAreThoseOfTheReference(t *testing.T) {
	g := golden.Open(t, "golden", "text_qwen.safetensors")
	want, shape := g.F32("pipe.negative_embeds")
	dir := t.TempDir()
	for precision, off := range map[string]float64{"f32": 1e-4, "bf16": 1. / 256} {
		s := samplesOf("a caption")
		s[0].Dropout = 0.1
		got, _ := embed(t, dir, "tiny-klein", fmt.Sprintf("{cache: ./cache, qtype: none, precision: %s, max_length: %d, layers: %s}", precision, shape[1], g.Meta("layers")), s...)
		require.Len(t, got, 1)
		require.Equal(t, shape[1], got[0].TextTokens)
		require.Equal(t, shape[1:], got[0].TextDropped.Shape)
		require.Equal(t, filepath.Join(dir, "cache"), got[0].TextCache)
		rows := read(t, got[0].TextCache, got[0].TextDropped)
		var most float64
		for _, v := range want {
			most = max(most, float64(v), -float64(v))
		}
		for i, v := range want {
			require.InDelta(t, v, rows[i], off*most, precision)
		}
	}
}

func TestOnlyWhatIsMissingIsEncoded(t *testing.T) {
	dir := t.TempDir()
	encoded := func(model, cfg string, samples ...port.Sample) any {
		t.Helper()
		got, o := embed(t, dir, model, "{cache: ./cache, max_length: 32, "+cfg+"}", samples...)
		require.Len(t, got, len(samples))
		for i, s := range got {
			require.Equal(t, samples[i].ID, s.ID, "order")
			require.False(t, s.Text.IsZero())
			require.Equal(t, s.Dropout > 0, !s.TextDropped.IsZero())
		}
		return o.Summary()["text embeddings encoded"]
	}
	list := samplesOf("a dog", "a cat", "a dog", "")
	require.Equal(t, 3, encoded("tiny-dev", "", list...), "first run")
	require.Equal(t, 0, encoded("tiny-dev", "", list...), "second run")
	list[1].Caption = "a horse"
	require.Equal(t, 1, encoded("tiny-dev", "", list...), "another caption")
	list[0].Dropout, list[0].Dropped = 0.5, "myst1le"
	require.Equal(t, 1, encoded("tiny-dev", "", list...), "a dropped caption")
	list[2].Dropout = 0.5
	require.Equal(t, 0, encoded("tiny-dev", "", list...), "a dropped caption that is another's caption")

	all := 4
	require.Equal(t, all, encoded("tiny-dev", "qtype: bf16", list...), "another qtype")
	require.Equal(t, all, encoded("tiny-dev", "precision: f32", list...), "another precision")
	require.Equal(t, all, encoded("tiny-dev", "layers: [1, 2, 4]", list...), "other layers")
	require.Equal(t, all, encoded("tiny-klein", "", list...), "another tower")
	require.Equal(t, 0, encoded("tiny-dev", "batch: 1", list...), "another batch")
}

func TestCaptionsThatAreCutAreSaid(t *testing.T) {
	_, o := embed(t, t.TempDir(), "tiny-klein", "{cache: ./cache, max_length: 40}", samplesOf("a dog", strings.Repeat("a dog ", 40))...)
	require.Equal(t, 1, o.Summary()["captions cut to max_length"])
}

func TestHitsTouchNoDevice(t *testing.T) {
	dir := t.TempDir()
	embed(t, dir, "tiny-dev", "{cache: ./cache, max_length: 16}", samplesOf("a dog")...)
	// A card that this machine does not have: whoever opens it fails.
	_, o := embedOn(t, "cuda:99", dir, golden.Path("tiny-dev"), "{cache: ./cache, max_length: 16}", samplesOf("a dog")...)
	require.NoError(t, o.Err)
	_, o = embedOn(t, "cuda:99", dir, golden.Path("tiny-dev"), "{cache: ./cache, max_length: 16}", samplesOf("a cat")...)
	require.ErrorContains(t, o.Err, "cuda:99")
}

func TestEncodeWithoutAPipeline(t *testing.T) {
	dir := t.TempDir()
	got, _ := embed(t, dir, "tiny-dev", "{cache: ./cache, max_length: 16}", samplesOf("a dog", "a cat")...)

	store, err := cache.Open(t.Context(), filepath.Join(dir, "other"), cache.Options{})
	require.NoError(t, err)
	defer store.Close()
	dev, err := cpu.New()
	require.NoError(t, err)
	opt := Options{TextEncoder: golden.Path("tiny-dev", "text_encoder"), Tokenizer: golden.Path("tiny-dev", "tokenizer"), MaxLength: 16}
	refs, err := Encode(t.Context(), store, dev, []string{"a cat", "a dog", "a cat"}, opt)
	require.NoError(t, err)
	require.NoError(t, dev.Close())
	require.Equal(t, []cache.Ref{got[1].Text, got[0].Text, got[1].Text}, refs)
}

// TestVersion pins what the stage makes: if this fails the same inputs give
// other embeddings, and version must be raised. Values are rounded to 1/32,
// since the last bits of a product depend on processor and BLAS library.
func TestVersion(t *testing.T) {
	model, err := filepath.Abs("../../examples/quickstart/model")
	require.NoError(t, err)
	got, o := embedOn(t, "cpu", t.TempDir(), model, "{cache: ./cache, max_length: 32, precision: f32}", samplesOf("a photo of a dog")...)
	require.NoError(t, o.Err)
	rows := read(t, got[0].TextCache, got[0].Text)
	var b []byte
	for _, v := range rows[len(rows)-4*got[0].Text.Shape[1]:] {
		b = append(b, byte(math.Round(32*float64(v))))
	}
	const pinned = "5ed584786f7b447f3c1335398ed93e5819e49bdb9bbfe18aac8af7b076b12b5f"
	require.Equal(t, "text/1", version, "pin the hash of the new version's output")
	require.Equal(t, pinned, cache.HashBytes(b).String(), "the embedding of %s has changed", version)
}
