package quantize

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/cache/atomicfile"
	"longship/gpu/memory"
	"longship/internal/golden"
	"longship/internal/quant"
	"longship/internal/safetensors"
	"longship/internal/weights"
	"longship/pipeline"
	"longship/pipeline/stagetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestConformance(t *testing.T) {
	stagetest.Conformance(t, Factory(), "", "model: {path: "+golden.Path("tiny-klein")+"}")
}

// result is what one run sent, read while its files were open.
type result struct {
	outcome *stagetest.Outcome
	source  string
	units   map[string][32]byte
}

func run(t *testing.T, dir, model, config string) result {
	t.Helper()
	r := result{units: map[string][32]byte{}}
	got := stagetest.Collect[*memory.WeightSet]("weights").Each(func(set *memory.WeightSet) error {
		r.source = set.Source
		for _, u := range append(set.Units, set.Outer) {
			r.units[u.Name] = u.Sum
		}
		return set.Close()
	})
	r.outcome = stagetest.Run(t, Factory(), config, stagetest.Dir(dir), stagetest.Head("model: {path: "+model+"}"), got)
	require.Len(t, got.Values, 1)
	return r
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "cache", "kept", kind, "*"))
	require.NoError(t, err)
	return found
}

// copyModel copies a model's transformer so that a test can change it.
func copyModel(t *testing.T, from string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	require.NoError(t, os.CopyFS(filepath.Join(dir, "transformer"), os.DirFS(filepath.Join(from, "transformer"))))
	return dir
}

func TestSecondRunKeepsTheFile(t *testing.T) {
	dir, model := t.TempDir(), copyModel(t, golden.Path("tiny-dev"))
	first := run(t, dir, model, "")
	require.Contains(t, first.outcome.Summary()["weights"], "quantised")
	made := files(t, dir)
	require.Len(t, made, 1)
	before, err := os.Stat(made[0])
	require.NoError(t, err)

	// Under another name: what counts is the content.
	moved := model + "-moved"
	require.NoError(t, os.Rename(model, moved))
	second := run(t, dir, moved, "")
	require.Contains(t, second.outcome.Summary()["weights"], "kept")
	require.Equal(t, first.units, second.units)
	require.Equal(t, first.source, second.source)
	after, err := os.Stat(made[0])
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "it is not made anew")
	require.True(t, after.ModTime().After(before.ModTime()), "what gc goes by: it was used")

	// Another type is another file of the same weights.
	third := run(t, dir, moved, "{qtype: int8}")
	require.Equal(t, first.source, third.source)
	require.Len(t, files(t, dir), 2)
}

func TestChangedWeightsAreQuantisedAnew(t *testing.T) {
	dir, model := t.TempDir(), copyModel(t, golden.Path("tiny-klein"))
	first := run(t, dir, model, "")
	shards, err := filepath.Glob(filepath.Join(model, "transformer", "*.safetensors"))
	require.NoError(t, err)
	data, err := os.ReadFile(shards[0])
	require.NoError(t, err)
	data[len(data)-1] ^= 1 // the exponent of the last value
	require.NoError(t, os.WriteFile(shards[0], data, 0o644))
	second := run(t, dir, model, "")
	require.NotEqual(t, first.source, second.source)
	require.NotEqual(t, first.units, second.units)
}

func TestDamagedFileIsMadeAgain(t *testing.T) {
	for name, damage := range map[string]func(data []byte) []byte{
		"flipped byte": func(d []byte) []byte { d[len(d)/2] ^= 1; return d },
		"cut":          func(d []byte) []byte { return d[:len(d)/3] },
		"empty":        func([]byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first := run(t, dir, golden.Path("tiny-klein"), "")
			made := files(t, dir)
			whole, err := os.ReadFile(made[0])
			require.NoError(t, err)
			data := damage(append([]byte{}, whole...))
			require.NoError(t, os.WriteFile(made[0], data, 0o644))
			for _, left := range []string{made[0], filepath.Join(filepath.Dir(made[0]), "another"+quant.Extension)} {
				require.NoError(t, os.WriteFile(left+atomicfile.Partial, []byte("left by a killed run"), 0o644))
			}
			second := run(t, dir, golden.Path("tiny-klein"), "")
			require.Contains(t, second.outcome.Summary()["weights"], "damaged")
			require.Equal(t, first.units, second.units)
			again, err := os.ReadFile(made[0])
			require.NoError(t, err)
			require.Equal(t, whole, again)
			require.Len(t, files(t, dir), 1)
		})
	}
}

// Faults of the source are found before anything is trained, and name the file
// and the tensor.
func TestSourceFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string) (want []string)
	}{
		"missing shard": {func(t *testing.T, dir string) []string {
			shards, err := filepath.Glob(filepath.Join(dir, "transformer", "*-of-*.safetensors"))
			require.NoError(t, err)
			require.NoError(t, os.Remove(shards[1]))
			return []string{filepath.Base(shards[1]), "missing"}
		}},
		"cut shard": {func(t *testing.T, dir string) []string {
			shards, err := filepath.Glob(filepath.Join(dir, "transformer", "*-of-*.safetensors"))
			require.NoError(t, err)
			info, err := os.Stat(shards[0])
			require.NoError(t, err)
			require.NoError(t, os.Truncate(shards[0], info.Size()-100))
			return []string{filepath.Base(shards[0]), "cut", "tensor"}
		}},
		"nan": {func(t *testing.T, dir string) []string {
			set, err := safetensors.Load(filepath.Join(dir, "transformer"))
			require.NoError(t, err)
			defer set.Close()
			name := set.Names()[3]
			x, _ := set.Tensor(name)
			f, err := os.OpenFile(x.Path(), os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, x.Off) // a NaN in every float type
			require.NoError(t, err)
			require.NoError(t, f.Close())
			return []string{filepath.Base(x.Path()), name, "NaN"}
		}},
		"wrong shape": {func(t *testing.T, dir string) []string {
			at := filepath.Join(dir, "transformer", "config.json")
			model, err := weights.OpenTransformer(dir)
			require.NoError(t, err)
			defer model.Close()
			config := model.Config
			config.TextDim++
			require.NoError(t, os.WriteFile(at, config.JSON(), 0o644))
			x, ok := model.Set.Tensor("context_embedder.weight")
			require.True(t, ok)
			return []string{x.Name, "shape", x.Path()}
		}},
		"no model": {func(t *testing.T, dir string) []string {
			require.NoError(t, os.RemoveAll(dir))
			return []string{dir}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			model := copyModel(t, golden.Path("tiny-dev"))
			want := c.change(t, model)
			dir := t.TempDir()
			got := stagetest.Collect[*memory.WeightSet]("weights")
			o := stagetest.Try(t, Factory(), "", stagetest.Dir(dir), stagetest.Head("model: {path: "+model+"}"), got)
			require.Error(t, o.Err)
			for _, w := range want {
				require.ErrorContains(t, o.Err, w)
			}
			require.Empty(t, got.Values)
			require.Empty(t, files(t, dir))
		})
	}
}

func TestConfigFaults(t *testing.T) {
	for config, want := range map[string]string{
		"{qtype: bf9}": "qtype", "{outer: x}": "outer", `{cache: ""}`: "cache",
	} {
		require.ErrorContains(t, stagetest.Try(t, Factory(), config).Err, want)
	}
}

func TestRoom(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, room(dir, 1))
	err := room(dir, math.MaxInt64)
	require.ErrorContains(t, err, dir)
	require.ErrorContains(t, err, wayOut)
}

// A run that is stopped ends without a fault, whether or not the weights came
// to be ready, and nothing stays open.
func TestStopOnRequest(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	got := stagetest.Collect[*memory.WeightSet]("weights").Each(func(set *memory.WeightSet) error { return set.Close() })
	o := stagetest.Try(t, Factory(), "", stagetest.Signals(signals), stagetest.Head("model: {path: "+golden.Path("tiny-hd128")+"}"), got)
	if o.Err != nil {
		require.ErrorIs(t, o.Err, pipeline.ErrInterrupted)
	}
}
