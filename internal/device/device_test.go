package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/golden"
	"longship/pipeline"
)

func TestOpen(t *testing.T) {
	tiny := pipeline.Model{Path: pipeline.Path(golden.Path("tiny-dev"))}
	large := pipeline.Model{Path: pipeline.Path(sparseModel(t, maxAutoParams))}
	almost := pipeline.Model{Path: pipeline.Path(sparseModel(t, maxAutoParams-1))}
	for name, c := range map[string]struct {
		env   *pipeline.Env
		total int64
		field string // of the fault
		fault string
	}{
		"cpu":                         {env: &pipeline.Env{Device: "cpu", VRAM: "auto", Model: large}, total: math.MaxInt64},
		"cpu with a budget":           {env: &pipeline.Env{Device: "cpu", VRAM: "1.5GiB", Model: tiny}, total: 3 << 29},
		"auto, small model":           {env: &pipeline.Env{Device: "auto", VRAM: "auto", Model: tiny}, total: math.MaxInt64},
		"auto, just below 1 B":        {env: &pipeline.Env{Device: "auto", Model: almost}, total: math.MaxInt64},
		"auto, 1 B":                   {env: &pipeline.Env{Device: "auto", Model: large}, field: "device", fault: "no GPU was found"},
		"auto, 1 B, only a VAE":       {env: &pipeline.Env{Device: "auto", Model: pipeline.Model{VAE: large.Path}}, field: "device", fault: "device: cpu"},
		"auto, nothing but the cache": {env: &pipeline.Env{Device: "auto"}, total: math.MaxInt64},
		"a card that is not there":    {env: &pipeline.Env{Device: "cuda:0", Model: tiny}, field: "device", fault: "cuda"},
		"a card without a number":     {env: &pipeline.Env{Device: "cuda:x", Model: tiny}, field: "device", fault: "number"},
		"an unknown device":           {env: &pipeline.Env{Device: "tpu", Model: tiny}, field: "device", fault: `"tpu"`},
		"an unknown size":             {env: &pipeline.Env{Device: "cpu", VRAM: "much", Model: tiny}, field: "vram", fault: `"much"`},
	} {
		t.Run(name, func(t *testing.T) {
			dev, budget, err := Open(t.Context(), c.env)
			if c.field != "" {
				var f *pipeline.HeadError
				require.True(t, errors.As(err, &f), "%v", err)
				require.Equal(t, c.field, f.Path)
				require.Contains(t, f.Err.Error(), c.fault)
				require.NoError(t, c.env.Close())
				return
			}
			require.NoError(t, err)
			require.Equal(t, "cpu", dev.Info().Kind)
			require.Equal(t, c.total, budget.Total())
			again, same, err := Open(t.Context(), c.env)
			require.NoError(t, err)
			require.Same(t, dev, again)
			require.Same(t, budget, same)
			require.NoError(t, c.env.Close())
		})
	}
}

// sparseModel writes a folder with a transformer of n parameters that takes no
// room on disk, and beside it the same as a single file.
func sparseModel(t *testing.T, n int64) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "transformer"), 0o755))
	for _, at := range []string{"transformer/model.safetensors", "model.safetensors"} {
		f, err := os.Create(filepath.Join(dir, filepath.FromSlash(at)))
		require.NoError(t, err)
		header := sparseHeader(n)
		_, err = f.Write(header)
		require.NoError(t, err)
		require.NoError(t, f.Truncate(int64(len(header))+n))
		require.NoError(t, f.Close())
	}
	return dir
}

// sparseHeader is the head of a safetensors file of one tensor of n bytes.
func sparseHeader(n int64) []byte {
	text := fmt.Sprintf(`{"w":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, n, n)
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
}
