package golden_test

import (
	"os"
	"path/filepath"
	"testing"

	"longship/internal/golden"
)

// Every file of the manifest is here.
func TestManifest(t *testing.T) {
	var m struct {
		Files map[string]int64
	}
	golden.JSON(t, &m, "manifest.json")
	if len(m.Files) == 0 {
		t.Fatal("the manifest lists no file")
	}
	for name := range m.Files {
		if _, err := os.Stat(filepath.Join(golden.Path(), filepath.FromSlash(name))); err != nil {
			t.Error(err)
		}
	}
}

// The readers agree on a tensor's elements.
func TestReaders(t *testing.T) {
	f := golden.Open(t, "golden", "dtypes.safetensors")
	for _, name := range f.Names() {
		raw, n := f.Raw(name), 1
		for _, d := range f.Shape(name) {
			n *= d
		}
		var got int
		switch f.DType(name) {
		case "F32", "BF16", "F16":
			data, _ := f.F32(name)
			got = len(data)
		default:
			data, _ := f.I64(name)
			got = len(data)
		}
		if got != n || len(raw)%n != 0 {
			t.Errorf("%s: %d elements of %d bytes read as %d", name, n, len(raw), got)
		}
	}
	if f.Has("no such tensor") {
		t.Error("a tensor that is not there was found")
	}
}
