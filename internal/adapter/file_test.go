package adapter_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/adapter"
	"longship/internal/flux2"
	"longship/internal/golden"
	"longship/internal/safetensors"
)

// goldenModel is the model that the golden adapters belong to.
func goldenModel(t testing.TB) flux2.Config {
	text, err := os.ReadFile(golden.Path("tiny-dev", "transformer", "config.json"))
	require.NoError(t, err)
	c, err := flux2.ParseConfig(text)
	require.NoError(t, err)
	return c
}

func TestReadLayouts(t *testing.T) {
	c := goldenModel(t)
	files, err := filepath.Glob(golden.Path("lora", "*.safetensors"))
	require.NoError(t, err)
	files = append(files, golden.Path("lora", "diffusers", "pytorch_lora_weights.safetensors"))
	for _, path := range files {
		f, err := safetensors.Open(path)
		require.NoError(t, err)
		defer f.Close()
		t.Run(filepath.Base(path), func(t *testing.T) {
			pairs, err := adapter.Read(f, c.Modules())
			if filepath.Base(path) == "lokr.safetensors" || filepath.Base(path) == "lokr_delta.safetensors" {
				require.ErrorContains(t, err, "belongs to no low-rank pair")
				return
			}
			require.NoError(t, err)
			tensors := 0
			for _, info := range f.Tensors {
				if len(info.Shape) == 2 {
					tensors++
				}
			}
			require.Len(t, pairs.Layers, tensors/2)
		})
	}
}

// write makes an adapter file of tensors given as shapes, zeros inside.
func write(t testing.TB, meta map[string]string, shapes map[string][]int) *safetensors.File {
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header := map[string]any{}
	if meta != nil {
		header["__metadata__"] = meta
	}
	var off int64
	for name, shape := range shapes {
		n := int64(4)
		for _, d := range shape {
			n *= int64(d)
		}
		header[name] = entry{"F32", shape, [2]int64{off, off + n}}
		off += n
	}
	text, err := json.Marshal(header)
	require.NoError(t, err)
	data := make([]byte, 8, 8+len(text)+int(off))
	for i := range 8 {
		data[i] = byte(len(text) >> (8 * i))
	}
	data = append(append(data, text...), make([]byte, off)...)
	path := filepath.Join(t.TempDir(), "lora.safetensors")
	require.NoError(t, os.WriteFile(path, data, 0o600))
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestReadRefuses(t *testing.T) {
	c := goldenModel(t)
	d := c.Width()
	const proj = "diffusion_model.double_blocks.0.img_attn.proj"
	for name, tc := range map[string]struct {
		meta   map[string]string
		shapes map[string][]int
		want   string
	}{
		"nothing":           {nil, map[string][]int{}, "no low-rank pairs"},
		"another model":     {nil, map[string][]int{"diffusion_model.layers.0.lora_A.weight": {4, d}}, "layers.0"},
		"half a pair":       {nil, map[string][]int{proj + ".lora_A.weight": {4, d}}, "one half"},
		"wrong input":       {nil, map[string][]int{proj + ".lora_A.weight": {4, d + 1}, proj + ".lora_B.weight": {d, 4}}, "A has shape"},
		"ranks differ":      {nil, map[string][]int{proj + ".lora_A.weight": {4, d}, proj + ".lora_B.weight": {d, 5}}, "B has shape"},
		"rank zero":         {nil, map[string][]int{proj + ".lora_A.weight": {0, d}, proj + ".lora_B.weight": {d, 0}}, "A has shape"},
		"alpha of many":     {nil, map[string][]int{proj + ".lora_A.weight": {4, d}, proj + ".lora_B.weight": {d, 4}, proj + ".alpha": {2}}, "alpha has shape"},
		"named twice":       {nil, map[string][]int{proj + ".lora_A.weight": {4, d}, proj + ".lora_down.weight": {4, d}}, "are both"},
		"broken metadata":   {map[string]string{"lora_adapter_metadata": "{"}, map[string][]int{}, "lora_adapter_metadata"},
		"another adapter":   {map[string]string{"lora_adapter_metadata": `{"transformer.use_dora": true}`}, map[string][]int{}, "DoRA"},
		"a pair and a norm": {nil, map[string][]int{"double_blocks.0.img_attn.norm.query_norm.scale": {16}}, "query_norm"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := adapter.Read(write(t, tc.meta, tc.shapes), c.Modules())
			require.ErrorContains(t, err, tc.want)
			require.ErrorContains(t, err, "lora.safetensors")
		})
	}
}

func TestReadScale(t *testing.T) {
	c := goldenModel(t)
	d := c.Width()
	const proj = "transformer.transformer_blocks.0.attn.to_out.0"
	shapes := map[string][]int{proj + ".lora_A.weight": {4, d}, proj + ".lora_B.weight": {d, 4}}
	for name, tc := range map[string]struct {
		meta string
		want float64
	}{
		"no metadata":     {"", 1},
		"alpha":           {`{"transformer.r": 4, "transformer.lora_alpha": 2}`, 0.5},
		"rank-stabilised": {`{"transformer.lora_alpha": 2, "transformer.use_rslora": true}`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			meta := map[string]string{}
			if tc.meta != "" {
				meta["lora_adapter_metadata"] = tc.meta
			}
			pairs, err := adapter.Read(write(t, meta, shapes), c.Modules())
			require.NoError(t, err)
			require.InDelta(t, tc.want, pairs.Layers[0].Scale(), 1e-12)
		})
	}
}
