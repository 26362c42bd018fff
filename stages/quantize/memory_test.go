package quantize

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"longship/cache"
	"longship/internal/flux2"
	"longship/internal/hostmem"
	"longship/internal/weights"
	"longship/pipeline/stagetest"
)

// sparseModel writes a klein-4B-shaped transformer as a single file of zeros
// that take no room on disk.
func sparseModel(t *testing.T) (path string, bytes int64) {
	t.Helper()
	c := flux2.Default()
	c.DoubleBlocks, c.SingleBlocks, c.Heads, c.TextDim, c.Guidance = 5, 20, 24, 7680, false
	header := map[string]any{}
	for _, w := range (weights.Layout{}).Targets(c) {
		n := int64(2)
		for _, d := range w.Shape {
			n *= int64(d)
		}
		header[w.Name] = map[string]any{"dtype": "BF16", "shape": w.Shape, "data_offsets": []int64{bytes, bytes + n}}
		bytes += n
	}
	text, err := json.Marshal(header)
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "klein.safetensors")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, binary.Write(f, binary.LittleEndian, uint64(len(text))))
	_, err = f.Write(text)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(8+int64(len(text))+bytes))
	require.NoError(t, f.Close())
	return path, bytes
}

// The peak of extra memory does not depend on the size of the model.
func TestMemoryOfALargeModel(t *testing.T) {
	if os.Getenv("LONGSHIP_LONG") != "1" {
		t.Skip("set LONGSHIP_LONG=1: quantises 7.8 GB and writes 4 GB")
	}
	model, bytes := sparseModel(t)
	before := hostmem.Release()
	peak, quit, done := before, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			peak = max(peak, hostmem.Anonymous())
			select {
			case <-quit:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	open, err := weights.OpenTransformer(model)
	require.NoError(t, err)
	defer open.Close()
	store, err := cache.Open(t.Context(), t.TempDir(), cache.Options{})
	require.NoError(t, err)
	defer store.Close()
	f := &file{model: open, store: store, env: stagetest.Env(t), qtype: "bf8", outer: "bf16", log: hclog.NewNullLogger()}
	start := time.Now()
	_, err = f.source(t.Context())
	require.NoError(t, err)
	hashed := time.Now()
	set, how, err := f.get(t.Context())
	require.NoError(t, err)
	require.NoError(t, set.Close())
	made := time.Now()
	close(quit)
	<-done
	require.Equal(t, "quantised", how)
	t.Logf("%.1f GB: %.1f s to identify, %.1f s to quantise; peak %d MiB more than the %d MiB before",
		float64(bytes)/1e9, hashed.Sub(start).Seconds(), made.Sub(hashed).Seconds(), (peak-before)>>20, before>>20)
	require.Less(t, peak-before, int64(1<<30))
}
