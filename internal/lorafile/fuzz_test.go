package lorafile

import (
	"os"
	"path/filepath"
	"testing"

	"longship/internal/golden"
	"longship/internal/safetensors"
)

// FuzzInspect: adapter files come from anywhere; none may do more harm than an error.
func FuzzInspect(f *testing.F) {
	v := []float32{1, 2, 3, 4}
	seeds := []string{
		pairFile(f, v, v),
		pairFile(f, v, v, safetensors.OutF32("diffusion_model.single_blocks.0.linear1.alpha", v[:1])),
		pairFile(f, v, v, safetensors.OutF32("x.lora_A.weight", nil, 0, 2), safetensors.OutF32("x.lora_B.weight", nil, 2, 0)),
		golden.Path("lora", "lokr.safetensors"),
	}
	for _, path := range seeds {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	path := filepath.Join(f.TempDir(), "a.safetensors")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if r, err := Inspect(path); err == nil && r.Hash == "" {
			t.Error("a report without a hash")
		}
	})
}
