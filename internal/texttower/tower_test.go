package texttower_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/internal/embedding"
	"longship/internal/golden"
	"longship/internal/mistral"
	"longship/internal/qwen3"
	"longship/internal/safetensors"
	"longship/internal/texttower"
)

// asCard is a device that does not say it is the CPU, so that offload is honoured.
type asCard struct{ gpu.Device }

func (d asCard) Info() gpu.Info { return gpu.Info{Kind: "card"} }

func TestAnEmbeddingDependsOnItsPromptAlone(t *testing.T) {
	for name, c := range towers {
		t.Run(name, func(t *testing.T) {
			const tokens = 64
			p, err := texttower.NewPrompter(golden.Path(c.model, "tokenizer"), c.family, tokens)
			require.NoError(t, err)
			var list []texttower.Prompt
			for _, caption := range []string{"a", "a photo of a dog", "an oil painting of a castle; it's 35mm film", "", "x y z"} {
				list = append(list, p.Prompt(caption))
			}
			for _, qtype := range []string{"none", "bf16", "bf8", "float8", "int8"} {
				f := open(t, golden.Path(c.model, "text_encoder"))
				alone := load(t, f, texttower.Options{QType: qtype, Tokens: tokens})
				var want [][]float32
				for _, q := range list {
					want = append(want, encode(t, alone, q)...)
				}
				require.Equal(t, want, encode(t, alone, list...), "%s, together", qtype)

				dev := device(t)
				streamed, err := f.Load(t.Context(), asCard{dev}, texttower.Options{QType: qtype, Tokens: tokens, Offload: 1, Batch: 3})
				require.NoError(t, err)
				require.Equal(t, want, encode(t, streamed, list...), "%s, offloaded, three at a time", qtype)
				require.NoError(t, streamed.Close())
				require.NoError(t, streamed.Close())
			}
		})
	}
}

func TestStoredRowsStandForAll(t *testing.T) {
	for name, c := range towers {
		t.Run(name, func(t *testing.T) {
			const tokens = 48
			p, err := texttower.NewPrompter(golden.Path(c.model, "tokenizer"), c.family, tokens)
			require.NoError(t, err)
			f := open(t, golden.Path(c.model, "text_encoder"))
			tower := load(t, f, texttower.Options{QType: "none", Tokens: tokens})
			for _, caption := range []string{"", "a dog", strings.Repeat("a very long caption ", 30)} {
				prompt := p.Prompt(caption)
				rows := encode(t, tower, prompt)[0]
				stored := prompt.Stored(rows)
				if c.family.PadLeft && prompt.First > 1 {
					require.Less(t, len(stored), len(rows))
				}
				whole := make([]float32, len(rows))
				require.NoError(t, embedding.Expand(whole, stored, f.Width()))
				require.Equal(t, rows, whole)
			}
		})
	}
}

// copyTower copies a tower's folder into one safetensors file that change may
// alter, tensor by tensor; nil drops one.
func copyTower(t *testing.T, model string, config func(c map[string]any), change func(name string, values []float32) []float32) string {
	t.Helper()
	src, dst := golden.Path(model, "text_encoder"), t.TempDir()
	text, err := os.ReadFile(filepath.Join(src, "config.json"))
	require.NoError(t, err)
	if config != nil {
		var c map[string]any
		require.NoError(t, json.Unmarshal(text, &c))
		config(c)
		text, err = json.Marshal(c)
		require.NoError(t, err)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dst, "config.json"), text, 0o644))
	set, err := safetensors.Load(src)
	require.NoError(t, err)
	defer set.Close()
	var tensors []safetensors.Out
	for _, name := range set.Names() {
		x, _ := set.Tensor(name)
		values, err := x.Float32()
		require.NoError(t, err)
		if change != nil {
			values = change(name, values)
		}
		if values != nil {
			tensors = append(tensors, safetensors.OutF32(name, values, x.Shape...))
		}
	}
	out, err := os.Create(filepath.Join(dst, "model.safetensors"))
	require.NoError(t, err)
	_, err = safetensors.Write(out, nil, tensors)
	require.NoError(t, errors.Join(err, out.Close()))
	return dst
}

func TestACutTowerCountsByItsFullDepth(t *testing.T) {
	whole := open(t, golden.Path("tiny-klein", "text_encoder"))
	last := whole.Depth()
	cut := copyTower(t, "tiny-klein", nil, func(name string, v []float32) []float32 {
		for n := last; n < whole.Config.Layers; n++ {
			if strings.Contains(name, "layers."+string(rune('0'+n))+".") {
				return nil
			}
		}
		return v
	})
	f := open(t, cut)
	require.Equal(t, whole.Layers, f.Layers)
	p, err := texttower.NewPrompter(golden.Path("tiny-klein", "tokenizer"), qwen3.Family(), 32)
	require.NoError(t, err)
	opt := texttower.Options{QType: "none", Tokens: 32}
	require.Equal(t, encode(t, load(t, whole, opt), p.Prompt("a dog")), encode(t, load(t, f, opt), p.Prompt("a dog")))

	_, err = texttower.Open(cut, []int{last + 1}, qwen3.Family())
	require.ErrorContains(t, err, "layers."+string(rune('0'+last)))
}

func TestFaultsAreNamed(t *testing.T) {
	nan := func(name string, v []float32) []float32 {
		if strings.HasSuffix(name, "layers.1.mlp.up_proj.weight") {
			v[7] /= 0 * v[7]
		}
		return v
	}
	t.Run("a value that is no number", func(t *testing.T) {
		f := open(t, copyTower(t, "tiny-klein", nil, nan))
		_, err := f.Load(t.Context(), device(t), texttower.Options{QType: "bf8", Tokens: 8})
		require.ErrorContains(t, err, "layers.1.mlp.up_proj.weight")
		require.ErrorContains(t, err, "model.safetensors")
	})
	t.Run("a token's row that is no number", func(t *testing.T) {
		p, err := texttower.NewPrompter(golden.Path("tiny-klein", "tokenizer"), qwen3.Family(), 8)
		require.NoError(t, err)
		prompt := p.Prompt("a dog")
		dir := copyTower(t, "tiny-klein", nil, func(name string, v []float32) []float32 {
			if strings.HasSuffix(name, "embed_tokens.weight") {
				v[(prompt.IDs[0]+1)*len(v)/vocabulary(t, "tiny-klein")-1] = float32(math.Inf(1))
			}
			return v
		})
		tower := load(t, open(t, dir), texttower.Options{QType: "bf8", Tokens: 8})
		err = tower.Encode(t.Context(), []texttower.Prompt{prompt}, func(int, []float32) error { return nil })
		require.ErrorContains(t, err, "embed_tokens.weight")
		require.ErrorContains(t, err, fmt.Sprintf("row %d", prompt.IDs[0]))
	})
	t.Run("every missing tensor at once", func(t *testing.T) {
		dir := copyTower(t, "tiny-klein", nil, func(name string, v []float32) []float32 {
			if strings.Contains(name, "q_norm") {
				return nil
			}
			return v
		})
		_, err := texttower.Open(dir, nil, qwen3.Family())
		require.ErrorContains(t, err, "layers.0.self_attn.q_norm.weight")
		require.ErrorContains(t, err, "layers.1.self_attn.q_norm.weight")
	})
	for name, c := range map[string]struct {
		change func(c map[string]any)
		want   string
	}{
		"an unknown kind":       {func(c map[string]any) { c["model_type"] = "t5" }, `"t5"`},
		"an activation":         {func(c map[string]any) { c["hidden_act"] = "gelu" }, "hidden_act"},
		"a missing size":        {func(c map[string]any) { delete(c, "hidden_size") }, "hidden_size"},
		"a scaled rope":         {func(c map[string]any) { c["rope_scaling"] = map[string]any{"rope_type": "yarn"} }, "yarn"},
		"heads that do not fit": {func(c map[string]any) { c["num_key_value_heads"] = 1 + c["num_attention_heads"].(float64) }, "key-value heads"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := texttower.Open(copyTower(t, "tiny-klein", c.change, nil), nil, mistral.Family(), qwen3.Family())
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("a hidden state that does not exist", func(t *testing.T) {
		_, err := texttower.Open(golden.Path("tiny-klein", "text_encoder"), []int{99}, qwen3.Family())
		require.ErrorContains(t, err, "hidden state 99")
	})
}

func vocabulary(t *testing.T, model string) int {
	return open(t, golden.Path(model, "text_encoder")).Config.Vocab
}

func TestDefaultLayers(t *testing.T) {
	for layers, want := range map[int][]int{40: {10, 20, 30}, 36: {9, 18, 27}, 4: {1, 2, 3}} {
		require.Equal(t, want, texttower.Config{Layers: layers}.DefaultLayers())
	}
}

// TestBothConfigForms reads what transformers 4 and 5 write.
func TestBothConfigForms(t *testing.T) {
	var configs []texttower.Config
	for _, name := range []string{"config.json", "config_v5.json"} {
		text, err := os.ReadFile(golden.Path("tiny-dev", "text_encoder", name))
		require.NoError(t, err)
		c, err := texttower.ParseConfig(text)
		require.NoError(t, err)
		configs = append(configs, c)
	}
	require.Equal(t, configs[0], configs[1])
}
