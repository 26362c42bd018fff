package embedding

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestExpandUndoesCollapse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(1, 5).Draw(t, "width")
		pads := rapid.IntRange(0, 6).Draw(t, "pads")
		real := rapid.IntRange(1, 6).Draw(t, "real")
		pad := rapid.SliceOfN(rapid.Float32Range(-1, 1), width, width).Draw(t, "pad")
		var rows []float32
		for range pads {
			rows = append(rows, pad...)
		}
		rows = append(rows, rapid.SliceOfN(rapid.Float32Range(2, 3), real*width, real*width).Draw(t, "rows")...)

		stored := Collapse(rows, width)
		if pads > 0 && len(stored) > (real+1)*width {
			t.Fatalf("%d pad rows are stored as %d rows", pads, len(stored)/width-real)
		}
		got := make([]float32, len(rows))
		if err := Expand(got, stored, width); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, rows) {
			t.Fatalf("got %v, want %v", got, rows)
		}
	})
}

func TestExpandRefuses(t *testing.T) {
	for name, c := range map[string]struct{ dst, stored, width int }{
		"nothing stored":      {8, 0, 4},
		"more rows than room": {8, 12, 4},
		"a broken row":        {8, 6, 4},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Expand(make([]float32, c.dst), make([]float32, c.stored), c.width); err == nil {
				t.Fatal("no error")
			}
		})
	}
}
