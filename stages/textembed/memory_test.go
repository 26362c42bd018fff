package textembed_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/internal/golden"
	"longship/internal/hostmem"
	"longship/stages/port"
)

const (
	towerHidden, towerInner        = 2560, 9728 // klein's Qwen3 4B, cut so that the file has 4 GB
	towerLayers, towerDepth        = 24, 18     // of the architecture, and those that an embedding needs
	towerHeads, towerKVHeads       = 32, 8
	towerHeadDim, towerVocab       = 128, 50_000
	towerLayerParams               = towerHidden * (2*towerHeads*towerHeadDim + 2*towerKVHeads*towerHeadDim + 3*towerInner)
	mib                      int64 = 1 << 20
)

// sparseTower writes a text tower whose weights are zeros that take no room on disk.
func sparseTower(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	config, err := json.Marshal(map[string]any{
		"model_type": "qwen3", "hidden_size": towerHidden, "num_hidden_layers": towerLayers, "num_attention_heads": towerHeads,
		"num_key_value_heads": towerKVHeads, "head_dim": towerHeadDim, "intermediate_size": towerInner, "vocab_size": towerVocab,
		"rope_theta": 1e6, "rms_norm_eps": 1e-6,
	})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644))

	header, at := map[string]any{}, int64(0)
	add := func(name string, shape ...int64) {
		n := int64(2)
		for _, d := range shape {
			n *= d
		}
		header[name] = map[string]any{"dtype": "BF16", "shape": shape, "data_offsets": []int64{at, at + n}}
		at += n
	}
	add("model.embed_tokens.weight", towerVocab, towerHidden)
	for n := range towerDepth {
		p := fmt.Sprintf("model.layers.%d.", n)
		add(p+"input_layernorm.weight", towerHidden)
		add(p+"post_attention_layernorm.weight", towerHidden)
		add(p+"self_attn.q_norm.weight", towerHeadDim)
		add(p+"self_attn.k_norm.weight", towerHeadDim)
		add(p+"self_attn.q_proj.weight", towerHeads*towerHeadDim, towerHidden)
		add(p+"self_attn.k_proj.weight", towerKVHeads*towerHeadDim, towerHidden)
		add(p+"self_attn.v_proj.weight", towerKVHeads*towerHeadDim, towerHidden)
		add(p+"self_attn.o_proj.weight", towerHidden, towerHeads*towerHeadDim)
		add(p+"mlp.gate_proj.weight", towerInner, towerHidden)
		add(p+"mlp.up_proj.weight", towerInner, towerHidden)
		add(p+"mlp.down_proj.weight", towerHidden, towerInner)
	}
	text, err := json.Marshal(header)
	require.NoError(t, err)
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	require.NoError(t, binary.Write(f, binary.LittleEndian, uint64(len(text))))
	_, err = f.Write(text)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(8+int64(len(text))+at))
	require.NoError(t, f.Close())
	return dir
}

// TestMemoryOfALargeTower: at most one layer beside the tower in BF8, and all
// of it given back.
func TestMemoryOfALargeTower(t *testing.T) {
	if os.Getenv("LONGSHIP_LONG") != "1" {
		t.Skip("set LONGSHIP_LONG=1: loads a text tower of 4 GB")
	}
	head := fmt.Sprintf("model: {text_encoder: %s, tokenizer: %s}", sparseTower(t), golden.Path("tiny-klein", "tokenizer"))
	before := hostmem.Release()
	peak, stop := watch()
	got := runStages(t, t.Context(), t.TempDir(), head, "  - textembed: {cache: ./cache, max_length: 16}\n", []port.Sample{{ID: "a", Caption: "a dog"}})
	stop()
	after := hostmem.Release()

	tower := int64(towerDepth * towerLayerParams)
	layer := int64(2 * towerLayerParams)
	t.Logf("before %d MiB, peak %d more, after %d more; the tower in BF8 is %d MiB, a layer in the file %d",
		before/mib, (*peak-before)/mib, (after-before)/mib, tower/mib, layer/mib)
	require.Len(t, got, 1)
	require.LessOrEqual(t, *peak-before, tower+layer)
	require.LessOrEqual(t, after-before, 64*mib)
}

// watch notes the largest anonymous memory until stop.
func watch() (peak *int64, stop func()) {
	peak = new(int64)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			*peak = max(*peak, hostmem.Anonymous())
			select {
			case <-quit:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return peak, func() { close(quit); <-done }
}
