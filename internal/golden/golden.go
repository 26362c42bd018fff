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
