package examples_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/internal/safetensors"
)

// A model that is not whole is refused before training, with the file and the
// tensor's name, whichever part of it that is.
func TestBadModel(t *testing.T) {
	t.Parallel()
	parts := map[string]string{ // folder of the model to its weights
		"transformer":  "diffusion_pytorch_model.safetensors",
		"vae":          "diffusion_pytorch_model.safetensors",
		"text_encoder": "model.safetensors",
	}
	faults := map[string]func(t *testing.T, path string) (want []string){
		"a shard is missing": missingShard,
		"a wrong shape":      wrongShape,
		"a NaN weight":       notANumber,
		"a cut file":         cutFile,
		"a tensor missing":   missingTensor,
	}
	for part, file := range parts {
		for name, spoil := range faults {
			t.Run(part+", "+name, func(t *testing.T) {
				p := newProject(t)
				path := p.path("model/" + part + "/" + file)
				want := spoil(t, path)
				o := p.run(quick("pipeline.yaml")...)
				require.Contains(t, []int{1, 2}, o.code, o.all())
				require.Less(t, o.took, 30*time.Second)
				require.Empty(t, o.events(t, "step"), "it trained")
				require.NoFileExists(t, p.path(adapter))
				last := said(o)
				for _, text := range append(want, filepath.Base(filepath.Dir(path))) {
					require.Contains(t, last, text)
				}
			})
		}
	}
}

// said is what stands behind the log: why the program failed.
func said(o outcome) string {
	var lines []string
	for line := range strings.Lines(o.stderr) {
		if !strings.HasPrefix(line, "{") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// tensors reads a safetensors file.
func tensors(t testing.TB, path string) (out []safetensors.Out, data map[string][]byte) {
	t.Helper()
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer f.Close()
	data = map[string][]byte{}
	for _, name := range f.Names() {
		x, _ := f.Tensor(name)
		raw, err := x.Read()
		require.NoError(t, err)
		data[name] = raw
		out = append(out, safetensors.OutBytes(name, x.DType, raw, x.Shape...))
	}
	return out, data
}

func writeTensors(t testing.TB, path string, out []safetensors.Out) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = safetensors.Write(f, nil, out)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// matrix returns the index of a matrix or kernel in the middle of a model,
// where no special case is likely.
func matrix(all []safetensors.Out) int {
	for i := len(all) / 2; ; i++ {
		if x := all[i]; len(x.Shape) >= 2 && x.Shape[0] > 1 && !strings.Contains(x.Name, "decoder") {
			return i
		}
	}
}

// missingShard splits the file in two, as the index says, and removes the second.
func missingShard(t *testing.T, path string) []string {
	all, _ := tensors(t, path)
	stem := strings.TrimSuffix(path, ".safetensors")
	shards := []string{stem + "-00001-of-00002.safetensors", stem + "-00002-of-00002.safetensors"}
	writeTensors(t, shards[0], all[:len(all)/2])
	where := map[string]string{}
	for i, x := range all {
		where[x.Name] = filepath.Base(shards[min(1, 2*i/len(all))])
	}
	index, err := json.Marshal(map[string]any{"weight_map": where})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path+".index.json", index, 0o644))
	require.NoError(t, os.Remove(path))
	return []string{filepath.Base(shards[1]), "missing"}
}

func wrongShape(t *testing.T, path string) []string {
	all, data := tensors(t, path)
	i := matrix(all)
	x := all[i]
	shape := append([]int{x.Shape[0] - 1}, x.Shape[1:]...)
	raw := data[x.Name]
	all[i] = safetensors.OutBytes(x.Name, x.DType, raw[:len(raw)/x.Shape[0]*shape[0]], shape...)
	writeTensors(t, path, all)
	return []string{filepath.Base(path), x.Name}
}

func notANumber(t *testing.T, path string) []string {
	all, data := tensors(t, path)
	x := all[matrix(all)]
	require.Equal(t, safetensors.BF16, x.DType)
	nan := math.Float32bits(float32(math.NaN()))
	raw := data[x.Name]
	raw[len(raw)/2&^1], raw[len(raw)/2|1] = byte(nan>>16), byte(nan>>24)
	writeTensors(t, path, all)
	return []string{filepath.Base(path), x.Name}
}

func cutFile(t *testing.T, path string) []string {
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()*3/4))
	return []string{filepath.Base(path)}
}

func missingTensor(t *testing.T, path string) []string {
	all, _ := tensors(t, path)
	i := matrix(all)
	name := all[i].Name
	writeTensors(t, path, append(all[:i:i], all[i+1:]...))
	return []string{filepath.Base(filepath.Dir(path)), name}
}
