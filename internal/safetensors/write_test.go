package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/blake3"
	"pgregory.net/rapid"

	"longship/internal/golden"
	"longship/internal/safetensors"
)

// A file of the reference implementation, read and written, has the same
// header fields, the same order and the same data.
func TestRewriteReferenceFiles(t *testing.T) {
	for _, name := range []string{"vae", "lora_grad_dev", "adapters", "dtypes"} {
		t.Run(name, func(t *testing.T) {
			path := golden.Path("golden", name+".safetensors")
			f, err := safetensors.Open(path)
			require.NoError(t, err)
			defer f.Close()
			var outs []safetensors.Out
			for _, n := range f.Names() {
				x, _ := f.Tensor(n)
				data, err := x.Read()
				require.NoError(t, err)
				outs = append(outs, safetensors.OutBytes(n, x.DType, data, x.Shape...))
			}
			var b bytes.Buffer
			sum, err := safetensors.Write(&b, f.Metadata, outs)
			require.NoError(t, err)
			require.Equal(t, blake3.Sum256(b.Bytes()), sum)
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			skip := 8 + int(binary.LittleEndian.Uint64(want))
			h, err := safetensors.ReadHeader(bytes.NewReader(b.Bytes()), int64(b.Len()))
			require.NoError(t, err)
			start := b.Len() - (len(want) - skip)
			require.Zero(t, start%8)
			require.Equal(t, want[skip:], b.Bytes()[start:])
			require.Equal(t, f.Metadata, h.Metadata)
			require.Equal(t, len(f.Tensors), len(h.Tensors))
			for i, x := range f.Tensors {
				require.Equal(t, x.Name, h.Tensors[i].Name)
				require.Equal(t, x.Shape, h.Tensors[i].Shape)
			}
		})
	}
}

// What is written is read back, whatever the names and shapes.
func TestWriteRead(t *testing.T) {
	types := []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.U8, safetensors.I64, safetensors.E5M2}
	rapid.Check(t, func(t *rapid.T) {
		data := map[string][]byte{}
		var outs []safetensors.Out
		for _, name := range rapid.SliceOfDistinct(rapid.String(), rapid.ID[string]).Draw(t, "names") {
			d := rapid.SampledFrom(types).Draw(t, "dtype")
			shape := rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "shape")
			n := d.Bits() / 8
			for _, s := range shape {
				n *= s
			}
			data[name] = rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "data")
			outs = append(outs, safetensors.OutBytes(name, d, data[name], shape...))
		}
		meta := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "metadata")
		var b bytes.Buffer
		_, err := safetensors.Write(&b, meta, outs)
		if _, taken := data["__metadata__"]; taken {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		h, err := safetensors.ReadHeader(bytes.NewReader(b.Bytes()), int64(b.Len()))
		require.NoError(t, err)
		require.True(t, maps.Equal(meta, h.Metadata))
		require.Len(t, h.Tensors, len(outs))
		for _, x := range h.Tensors {
			require.True(t, bytes.Equal(data[x.Name], b.Bytes()[x.Off:x.Off+x.Bytes]))
		}
	})
}

func TestWriteRefusals(t *testing.T) {
	short := safetensors.Out{Name: "a", DType: safetensors.F32, Shape: []int{2}, Write: func(w io.Writer) error {
		_, err := w.Write(make([]byte, 4))
		return err
	}}
	a := safetensors.OutF32("a", []float32{1}, 1)
	failed := errors.New("broken source")
	for name, c := range map[string]struct {
		outs []safetensors.Out
		want string
	}{
		"too few bytes":  {[]safetensors.Out{short}, `"a"`},
		"name twice":     {[]safetensors.Out{a, a}, `"a"`},
		"unknown type":   {[]safetensors.Out{safetensors.OutBytes("x", "F99", nil)}, "F99"},
		"negative shape": {[]safetensors.Out{safetensors.OutF32("n", nil, -1)}, `"n"`},
		"failing source": {[]safetensors.Out{{Name: "s", DType: safetensors.U8, Write: func(io.Writer) error { return failed }}}, failed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := safetensors.Write(io.Discard, nil, c.outs)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// FuzzReadHeader: no input makes the parser panic or accept a tensor outside the file.
func FuzzReadHeader(f *testing.F) {
	files, err := filepath.Glob(golden.Path("safetensors_cases", "*.safetensors"))
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds: ", err)
	}
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := safetensors.ReadHeader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		end := int64(8 + binary.LittleEndian.Uint64(data))
		names := map[string]bool{}
		for _, x := range h.Tensors {
			if x.Off != end || x.Bytes < 0 || names[x.Name] {
				t.Fatalf("tensor %q at [%d,%d) after %d", x.Name, x.Off, x.Off+x.Bytes, end)
			}
			end = x.Off + x.Bytes
			names[x.Name] = true
		}
		if end != int64(len(data)) {
			t.Fatalf("tensors end at %d of %d", end, len(data))
		}
	})
}

func BenchmarkRead(b *testing.B) {
	path := filepath.Join(b.TempDir(), "big.safetensors")
	f, err := os.Create(path)
	require.NoError(b, err)
	const n = 64 << 20
	_, err = safetensors.Write(f, nil, []safetensors.Out{safetensors.OutBytes("w", safetensors.BF16, make([]byte, n), n/2)})
	require.NoError(b, err)
	require.NoError(b, f.Close())
	file, err := safetensors.Open(path)
	require.NoError(b, err)
	defer file.Close()
	x, _ := file.Tensor("w")
	b.Run("bytes", func(b *testing.B) {
		b.SetBytes(n)
		buf := make([]byte, 4<<20)
		for b.Loop() {
			for off := int64(0); off < n; off += int64(len(buf)) {
				if _, err := x.ReadAt(buf, off); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("floats", func(b *testing.B) {
		b.SetBytes(n)
		dst := make([]float32, 1<<20)
		for b.Loop() {
			for first := 0; first < n/2; first += len(dst) {
				if err := x.Floats(dst, first); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

func BenchmarkHeader(b *testing.B) {
	var outs []safetensors.Out
	for i := range 1000 {
		outs = append(outs, safetensors.OutF32("transformer_blocks."+string(rune('a'+i%26))+"."+string(rune(0x400+i)), nil, 0, 3))
	}
	var buf bytes.Buffer
	if _, err := safetensors.Write(&buf, nil, outs); err != nil {
		b.Fatal(err)
	}
	data := slices.Clone(buf.Bytes())
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := safetensors.ReadHeader(bytes.NewReader(data), int64(len(data))); err != nil {
			b.Fatal(err)
		}
	}
}
