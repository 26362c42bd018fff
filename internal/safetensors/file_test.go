package safetensors_test

import (
	"path/filepath"
	"slices"
	"testing"

	"longship/internal/golden"
	"longship/internal/safetensors"
)

// The reference parser's verdict holds for every case but one: it lets two
// equal entries of one name pass, which the format forbids.
func TestCases(t *testing.T) {
	var cases map[string]struct {
		Accept bool
		Keys   []string
	}
	golden.JSON(t, &cases, "safetensors_cases", "expected.json")
	files, err := filepath.Glob(golden.Path("safetensors_cases", "*.safetensors"))
	if err != nil || len(files) != len(cases) || len(files) == 0 {
		t.Fatalf("%d files for %d verdicts: %v", len(files), len(cases), err)
	}
	for name, want := range cases {
		if name == "dup_key_same" {
			want.Accept = false
		}
		t.Run(name, func(t *testing.T) {
			f, err := safetensors.Open(golden.Path("safetensors_cases", name+".safetensors"))
			if (err == nil) != want.Accept {
				t.Fatalf("accepted is %v, want %v (error: %v)", err == nil, want.Accept, err)
			}
			if err != nil {
				return
			}
			defer f.Close()
			slices.Sort(want.Keys)
			if got := f.Names(); !slices.Equal(got, want.Keys) {
				t.Fatalf("names %q, want %q", got, want.Keys)
			}
			for _, n := range want.Keys {
				x, _ := f.Tensor(n)
				if _, err := x.Read(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
