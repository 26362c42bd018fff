package checkpoint_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu/tensor"
	"longship/internal/runstate"
	"longship/internal/safetensors"
	"longship/pipeline"
	"longship/pipeline/stagetest"
	"longship/stages/checkpoint"
	"longship/stages/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	stagetest.Conformance(t, checkpoint.Factory(), `{every: 2}`)
}

// host is a buffer in ordinary memory.
type host []byte

func (h host) Size() int64  { return int64(len(h)) }
func (h host) Host() []byte { return h }
func (h host) Free() error  { return nil }

func values(rows, cols int, v float32) tensor.Tensor {
	var raw host
	for range rows * cols {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return tensor.New(raw, 0, tensor.F32, rows, cols)
}

// state is a fused pair of rank 1 and scale 2 after a step.
func state(step int) *port.State {
	p := port.Param{Module: "double_blocks.0.img_attn.qkv", Rows: port.Rows{Lo: 0, Hi: 3}, Split: []port.Rows{
		{Name: "transformer_blocks.0.attn.to_q", Lo: 0, Hi: 1},
		{Name: "transformer_blocks.0.attn.to_k", Lo: 1, Hi: 2},
		{Name: "transformer_blocks.0.attn.to_v", Lo: 2, Hi: 3},
	}}
	a, b := p, p
	a.Part, a.Value = "lora_A", values(1, 4, 1)
	b.Part, b.Value = "lora_B", values(3, 1, float32(step))
	return &port.State{Step: step, Adapter: port.Adapter{Type: "lora", Rank: 1, Alpha: 2, Arch: "flux2"}, Params: []port.Param{a, b}}
}

// loans are those of a run of n steps, of which the last may be a stop.
func loans(n int, stop bool) (all []stagetest.Loan[*port.State]) {
	for step := 0; step <= n; step++ {
		all = append(all, stagetest.Loan[*port.State]{
			At:    pipeline.Moment{Step: step, Last: step == n && !stop, Stop: step == n && stop},
			Value: state(step),
		})
	}
	return all
}

func saved(t *testing.T, out *stagetest.Outcome) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(out.Env.Output, out.Env.Name, "*.safetensors"))
	require.NoError(t, err)
	for _, p := range paths {
		names = append(names, filepath.Base(p)[len(out.Env.Name):])
	}
	return names
}

func TestWhenItSaves(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		steps  int
		stop   bool
		want   []string
	}{
		"every two, to the end": {"{every: 2}", 5, false, []string{".safetensors", "_000000002.safetensors", "_000000004.safetensors"}},
		"keeps two":             {"{every: 1, keep: 2}", 5, false, []string{".safetensors", "_000000003.safetensors", "_000000004.safetensors"}},
		"stopped":               {"{every: 4}", 5, true, []string{"_000000004.safetensors", "_000000005.safetensors"}},
		"only the end":          {"{every: 0}", 5, false, []string{".safetensors"}},
		"stopped at once":       {"{}", 0, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			out := stagetest.Run(t, checkpoint.Factory(), c.config, stagetest.Lend("state", loans(c.steps, c.stop)...))
			require.ElementsMatch(t, c.want, saved(t, out))
			if len(c.want) > 0 {
				newest, ignored, err := runstate.In(out.Env.Output, out.Env.Name).Latest(t.Context())
				require.NoError(t, err)
				require.Empty(t, ignored)
				require.Equal(t, c.steps, newest.Step)
				require.Equal(t, !c.stop, newest.Final)
				require.Equal(t, newest.AdapterPath, out.Summary()["saved"])
			}
		})
	}
}

// The scale is in B in both layouts, and no loader has another word on it.
func TestLayouts(t *testing.T) {
	for layout, want := range map[string]map[string][]float32{
		"comfyui": {
			"diffusion_model.double_blocks.0.img_attn.qkv.lora_A.weight": {1, 1, 1, 1},
			"diffusion_model.double_blocks.0.img_attn.qkv.lora_B.weight": {6, 6, 6},
		},
		"diffusers": {
			"transformer.transformer_blocks.0.attn.to_q.lora_A.weight": {1, 1, 1, 1}, "transformer.transformer_blocks.0.attn.to_q.lora_B.weight": {6},
			"transformer.transformer_blocks.0.attn.to_k.lora_A.weight": {1, 1, 1, 1}, "transformer.transformer_blocks.0.attn.to_k.lora_B.weight": {6},
			"transformer.transformer_blocks.0.attn.to_v.lora_A.weight": {1, 1, 1, 1}, "transformer.transformer_blocks.0.attn.to_v.lora_B.weight": {6},
		},
	} {
		t.Run(layout, func(t *testing.T) {
			out := stagetest.Run(t, checkpoint.Factory(), "{layout: "+layout+"}", stagetest.Lend("state", loans(3, false)...))
			f, err := safetensors.Open(filepath.Join(out.Env.Output, out.Env.Name, out.Env.Name+".safetensors"))
			require.NoError(t, err)
			defer f.Close()
			got := map[string][]float32{}
			for _, name := range f.Names() {
				x, _ := f.Tensor(name)
				require.Equal(t, safetensors.BF16, x.DType)
				got[name], err = x.Float32()
				require.NoError(t, err)
			}
			require.Equal(t, want, got)
		})
	}
}

func TestConfigFaults(t *testing.T) {
	for config, want := range map[string]string{
		"{every: -1}":     "every: -1 is negative",
		"{keep: -1}":      "keep: -1 is negative",
		"{layout: kohya}": `layout: "kohya" is none of comfyui, diffusers`,
		"{dtype: int8}":   `dtype: "int8" is none of bf16, fp16, fp32`,
	} {
		t.Run(config, func(t *testing.T) {
			out := stagetest.Try(t, checkpoint.Factory(), config)
			require.ErrorContains(t, out.Err, want)
		})
	}
}

// What cannot be saved stops the run; the checkpoint before it stays.
func TestFailedSave(t *testing.T) {
	all := loans(3, false)
	all[3].Value.Params[1].Value = values(3, 1, float32(math.NaN()))
	out := stagetest.Try(t, checkpoint.Factory(), "{every: 1}", stagetest.Lend("state", all...))
	require.ErrorContains(t, out.Err, "save step 3")
	require.ErrorContains(t, out.Err, "double_blocks.0.img_attn.qkv.lora_B")
	newest, ignored, err := runstate.In(out.Env.Output, out.Env.Name).Latest(t.Context())
	require.NoError(t, err)
	require.Empty(t, ignored)
	require.Equal(t, 2, newest.Step)
}

func TestFolderInUse(t *testing.T) {
	dir := t.TempDir()
	lock, err := runstate.In(filepath.Join(dir, "output"), "cat").Lock(t.Context(), nil)
	require.NoError(t, err)
	defer lock.Release()
	out := stagetest.Try(t, checkpoint.Factory(), "{}", stagetest.Dir(dir), stagetest.Head("name: cat\noutput: ./output"),
		stagetest.Lend("state", loans(1, false)...))
	require.ErrorContains(t, out.Err, "already open in this process")
	_, err = os.Stat(filepath.Join(dir, "output", "cat", "cat.safetensors"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
