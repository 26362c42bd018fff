package embedding

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestExpandRepeatsTheFirstRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(1, 5).Draw(t, "width")
		pads := rapid.IntRange(0, 6).Draw(t, "rows left out")
		rows := rapid.IntRange(1, 6).Draw(t, "rows stored")
		stored := rapid.SliceOfN(rapid.Float32(), rows*width, rows*width).Draw(t, "stored")

		got := make([]float32, (pads+rows)*width)
		if err := Expand(got, stored, width); err != nil {
			t.Fatal(err)
		}
		want := append(slices.Repeat(stored[:width], pads), stored...)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
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
