package safetensors_test

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/golden"
	"longship/internal/safetensors"
)

// write makes a file with one float32 tensor a name.
func write(t *testing.T, path string, names ...string) {
	t.Helper()
	var outs []safetensors.Out
	for i, n := range names {
		outs = append(outs, safetensors.OutF32(n, []float32{float32(i), 1}, 2))
	}
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = safetensors.Write(f, nil, outs)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func index(t *testing.T, path string, weights map[string]string) {
	t.Helper()
	data, err := json.Marshal(map[string]any{"weight_map": weights})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o644))
}

func TestLoad(t *testing.T) {
	for name, c := range map[string]struct {
		make  func(t *testing.T, dir string)
		names []string // nil: refused
		err   string
	}{
		"one file": {func(t *testing.T, d string) { write(t, d+"/x.safetensors", "a") }, []string{"a"}, ""},
		"index": {func(t *testing.T, d string) {
			write(t, d+"/m-00001-of-00002.safetensors", "a")
			write(t, d+"/m-00002-of-00002.safetensors", "b", "c")
			index(t, d+"/m.safetensors.index.json", map[string]string{"a": "m-00001-of-00002.safetensors", "b": "m-00002-of-00002.safetensors"})
		}, []string{"a", "b"}, ""},
		"shards without an index": {func(t *testing.T, d string) {
			write(t, d+"/m-00001-of-00002.safetensors", "a")
			write(t, d+"/m-00002-of-00002.safetensors", "b")
		}, []string{"a", "b"}, ""},
		"variant alone": {func(t *testing.T, d string) { write(t, d+"/model.fp16.safetensors", "v") }, []string{"v"}, ""},
		"variant with index": {func(t *testing.T, d string) {
			write(t, d+"/model.fp16-00001-of-00001.safetensors", "a")
			index(t, d+"/model.safetensors.index.fp16.json", map[string]string{"a": "model.fp16-00001-of-00001.safetensors"})
		}, []string{"a"}, ""},
		"plain before variant": {func(t *testing.T, d string) {
			write(t, d+"/model.safetensors", "p")
			write(t, d+"/model.fp16.safetensors", "v")
		}, []string{"p"}, ""},
		"several models": {func(t *testing.T, d string) {
			write(t, d+"/x.safetensors", "a")
			write(t, d+"/y.safetensors", "a")
		}, nil, "several"},
		"nothing": {func(*testing.T, string) {}, nil, "no safetensors"},
		"missing shard": {func(t *testing.T, d string) {
			write(t, d+"/m-00001-of-00002.safetensors", "a")
			index(t, d+"/m.safetensors.index.json", map[string]string{"a": "m-00001-of-00002.safetensors", "b": "m-00002-of-00002.safetensors"})
		}, nil, "m-00002-of-00002.safetensors"},
		"missing shard without an index": {func(t *testing.T, d string) { write(t, d+"/m-00002-of-00003.safetensors", "a") }, nil, "m-00003-of-00003.safetensors"},
		"tensor not in its shard": {func(t *testing.T, d string) {
			write(t, d+"/m-00001-of-00001.safetensors", "a")
			index(t, d+"/m.safetensors.index.json", map[string]string{"a": "m-00001-of-00001.safetensors", "lost": "m-00001-of-00001.safetensors"})
		}, nil, "lost"},
		"tensor in two shards": {func(t *testing.T, d string) {
			write(t, d+"/m-00001-of-00002.safetensors", "a")
			write(t, d+"/m-00002-of-00002.safetensors", "a")
		}, nil, `"a"`},
		"index leads out of the folder": {func(t *testing.T, d string) {
			index(t, d+"/m.safetensors.index.json", map[string]string{"a": "../m.safetensors"})
		}, nil, "no file name"},
		"cut shard": {func(t *testing.T, d string) {
			write(t, d+"/x.safetensors", "a")
			info, err := os.Stat(d + "/x.safetensors")
			require.NoError(t, err)
			require.NoError(t, os.Truncate(d+"/x.safetensors", info.Size()-1))
		}, nil, "cut"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, dir)
			s, err := safetensors.Load(dir)
			if c.names == nil {
				require.ErrorContains(t, err, c.err)
				require.ErrorContains(t, err, dir)
				return
			}
			require.NoError(t, err)
			defer s.Close()
			require.Equal(t, c.names, s.Names())
		})
	}
}

func TestLoadGoldenShards(t *testing.T) {
	var index struct {
		Weights map[string]string `json:"weight_map"`
	}
	golden.JSON(t, &index, "tiny-dev", "transformer", "diffusion_pytorch_model.safetensors.index.json")
	s, err := safetensors.Load(golden.Path("tiny-dev", "transformer"))
	require.NoError(t, err)
	defer s.Close()
	require.Len(t, s.Names(), len(index.Weights))
	for name, file := range index.Weights {
		x, ok := s.Tensor(name)
		require.True(t, ok, name)
		require.Equal(t, file, filepath.Base(x.Path()))
	}
}

func TestLoadNamesWhatIsNotThere(t *testing.T) {
	_, err := safetensors.Load(filepath.Join(t.TempDir(), "nowhere"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// A file that is cut while it is open gives an error with both names.
func TestFileCutWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	write(t, path, "first", "second")
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer f.Close()
	x, _ := f.Tensor("second")
	require.NoError(t, os.Truncate(path, x.Off+1))
	_, err = x.Read()
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorContains(t, err, `"second"`)
	require.ErrorContains(t, err, path)
}

// FuzzIndex: an index never names a file outside its folder.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":8},"weight_map":{"a":"m.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../m.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"/etc/passwd","b":""}}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "m.safetensors.index.json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		if s, err := safetensors.Load(dir); err == nil {
			t.Fatalf("an empty folder gave %q", s.Names())
		}
	})
}
