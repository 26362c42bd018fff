// Package golden gives tests the reference numbers in testdata: files written
// by PyTorch, diffusers and transformers (see testdata/README.md). Only tests
// import it. Every name, shape and count is to be taken from the files, so that
// other files of the same kind can stand in their place.
package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"longship/internal/dtype"
	"longship/internal/safetensors"
)

// Path returns the absolute path of a file or folder in testdata, from tests
// of any package: Path("tiny-dev", "vae").
func Path(elem ...string) string {
	_, source, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(source), "testdata"}, elem...)...)
}

// JSON decodes a JSON file of testdata into v.
func JSON(t testing.TB, v any, elem ...string) {
	t.Helper()
	text, err := os.ReadFile(Path(elem...))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatalf("%s: %v", Path(elem...), err)
	}
}

// File is an open safetensors file of testdata. A name that is not there, or a
// value of another kind, ends the test.
type File struct {
	t testing.TB
	f *safetensors.File
}

// Open opens a safetensors file of testdata until the test ends:
// Open(t, "golden", "vae.safetensors").
func Open(t testing.TB, elem ...string) *File {
	t.Helper()
	f, err := safetensors.Open(Path(elem...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &File{t: t, f: f}
}

// Names returns the names of the tensors, sorted.
func (f *File) Names() []string { return f.f.Names() }

// Has says whether there is a tensor of that name.
func (f *File) Has(name string) bool {
	_, ok := f.f.Tensor(name)
	return ok
}

// Meta returns a value of the file's metadata, "" where there is none.
func (f *File) Meta(key string) string { return f.f.Metadata[key] }

// Shape returns a tensor's shape.
func (f *File) Shape(name string) []int {
	f.t.Helper()
	return f.tensor(name).Shape
}

// DType returns a tensor's type as the file has it: "F32", "BF16".
func (f *File) DType(name string) string {
	f.t.Helper()
	return string(f.tensor(name).DType)
}

// F32 returns a tensor of any float type as float32, with its shape.
func (f *File) F32(name string) (data []float32, shape []int) {
	f.t.Helper()
	t := f.tensor(name)
	data, err := t.Float32()
	if err != nil {
		f.t.Fatal(err)
	}
	return data, t.Shape
}

// I64 returns an integer tensor as int64, with its shape.
func (f *File) I64(name string) (data []int64, shape []int) {
	f.t.Helper()
	t := f.tensor(name)
	raw := f.Raw(name)
	switch t.DType {
	case safetensors.I64:
		data = dtype.View[int64](raw)
	case safetensors.I32:
		data = integers(dtype.View[int32](raw))
	case safetensors.U16:
		data = integers(dtype.View[uint16](raw))
	case safetensors.I16:
		data = make([]int64, t.Len())
		for i, v := range dtype.View[uint16](raw) {
			data[i] = int64(int16(v))
		}
	case safetensors.I8:
		data = integers(dtype.View[int8](raw))
	case safetensors.U8, safetensors.Bool:
		data = integers(raw)
	default:
		f.t.Fatalf("%s: tensor %q is %s, no integer", f.f.Path(), name, t.DType)
	}
	return data, t.Shape
}

// Raw returns a tensor's bytes as the file has them.
func (f *File) Raw(name string) []byte {
	f.t.Helper()
	p, err := f.tensor(name).Read()
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

func (f *File) tensor(name string) safetensors.Tensor {
	f.t.Helper()
	t, ok := f.f.Tensor(name)
	if !ok {
		f.t.Fatalf("%s: no tensor %q", f.f.Path(), name)
	}
	return t
}

func integers[T int32 | uint16 | int8 | byte](s []T) []int64 {
	out := make([]int64, len(s))
	for i, v := range s {
		out[i] = int64(v)
	}
	return out
}

// Under returns the names of the tensors that begin with prefix, without it,
// sorted. None ends the test: a comparison with nothing would always pass.
func (f *File) Under(prefix string) []string {
	f.t.Helper()
	var names []string
	for _, name := range f.Names() {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			names = append(names, rest)
		}
	}
	if len(names) == 0 {
		f.t.Fatalf("%s: no tensor begins with %q", f.f.Path(), prefix)
	}
	return names
}

// Items returns the items of a float tensor [B, ...], and the shape of one.
func (f *File) Items(name string) (items [][]float32, shape []int) {
	f.t.Helper()
	all, dims := f.F32(name)
	n := len(all) / dims[0]
	for i := range dims[0] {
		items = append(items, all[i*n:(i+1)*n])
	}
	return items, dims[1:]
}

// Tokens returns images [B, C, h, w] as tokens [B, h·w, C].
func (f *File) Tokens(name string) (data []float32, shape []int) {
	f.t.Helper()
	x, dims := f.F32(name)
	b, c, n := dims[0], dims[1], dims[2]*dims[3]
	data = make([]float32, len(x))
	for i := range b {
		for k := range c {
			for p := range n {
				data[(i*n+p)*c+k] = x[(i*c+k)*n+p]
			}
		}
	}
	return data, []int{b, n, c}
}

// Grids returns the grids (rows, columns) that token ids [B, N, 4] of one item
// run through, in order: ids are (T, H, W, L), and each image has a T of its own.
func (f *File) Grids(name string) (grids [][2]int, batch int) {
	f.t.Helper()
	ids, dims := f.I64(name)
	last := int64(-1)
	for ids = ids[:dims[1]*dims[2]]; len(ids) > 0; ids = ids[dims[2]:] {
		if ids[0] != last {
			last = ids[0]
			grids = append(grids, [2]int{})
		}
		g := &grids[len(grids)-1]
		g[0], g[1] = max(g[0], int(ids[1])+1), max(g[1], int(ids[2])+1)
	}
	return grids, dims[0]
}

// Number returns a number of the file's metadata.
func (f *File) Number(key string) float64 {
	f.t.Helper()
	v, err := strconv.ParseFloat(f.Meta(key), 64)
	if err != nil {
		f.t.Fatalf("%s: metadata %q: %v", f.f.Path(), key, err)
	}
	return v
}
