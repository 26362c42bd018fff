package runstate

import (
	"context"
	"os"
	"testing"
)

// FuzzLatest: whatever lies where a state should be, it is a whole one or it is
// passed over.
func FuzzLatest(f *testing.F) {
	folder := In(f.TempDir(), "cat")
	for step := range 2 {
		if _, err := folder.Save(context.Background(), bf16(0), stateAt(step)); err != nil {
			f.Fatal(err)
		}
		data, err := os.ReadFile(folder.statePath(step))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(folder.statePath(1), data, 0o644); err != nil {
			t.Fatal(err)
		}
		c, ignored, err := folder.Latest(context.Background())
		if err != nil {
			return // of a newer format
		}
		if c == nil || c.Step == 0 && len(ignored) == 0 {
			t.Errorf("the whole checkpoint before it is not found: %v", ignored)
		}
		requireState(t, c)
	})
}
