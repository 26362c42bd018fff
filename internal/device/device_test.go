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

	"longship/gpu"
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

// card is a device with memory that others share.
type card struct {
	gpu.Discard
	mem gpu.MemInfo
}

func (c *card) MemInfo() (gpu.MemInfo, error) { return c.mem, nil }

func TestBudgetOfACard(t *testing.T) {
	const gib = 1 << 30
	alone := gpu.MemInfo{Total: 24 * gib, Free: 23 * gib, Own: gib}
	shared := gpu.MemInfo{Total: 24 * gib, Free: 10 * gib, Own: gib}
	for name, c := range map[string]struct {
		vram  string
		mem   gpu.MemInfo
		total int64
		fault string
	}{
		"auto":                        {vram: "auto", mem: alone, total: 23*gib - growth},
		"auto, shared":                {vram: "", mem: shared, total: 10*gib - growth},
		"auto, full":                  {vram: "auto", mem: gpu.MemInfo{Total: 24 * gib, Own: gib}, total: 0},
		"a cap":                       {vram: "12GiB", mem: alone, total: 11*gib - growth},
		"a cap of the whole":          {vram: "24GiB", mem: alone, total: 23*gib - growth},
		"a cap that others leave":     {vram: "11GiB", mem: shared, total: 10*gib - growth},
		"a cap that others do not":    {vram: "12GiB", mem: shared, fault: "12GiB: other processes have 13 GiB of the card's 24 GiB; auto, or at most 11 GiB, leaves them that"},
		"a cap above the card":        {vram: "25GiB", mem: alone, fault: "25GiB is above the card's 24 GiB"},
		"a cap below what CUDA takes": {vram: "1GiB", mem: alone, fault: "of 1GiB the CUDA context and libraries take 1.3 GiB; more is needed for anything to run"},
	} {
		t.Run(name, func(t *testing.T) {
			total, err := room(c.vram, &card{mem: c.mem})
			if c.fault != "" {
				var f *pipeline.HeadError
				require.ErrorAs(t, err, &f)
				require.Equal(t, "vram", f.Path)
				require.EqualError(t, f.Err, c.fault)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.total, total)
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
