package texttower_test

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/tensor"
	"longship/internal/golden"
	"longship/internal/mistral"
	"longship/internal/qwen3"
	"longship/internal/texttower"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func device(t testing.TB) gpu.Device {
	t.Helper()
	dev, err := cpu.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

func open(t testing.TB, dir string, layers ...int) *texttower.Files {
	t.Helper()
	f, err := texttower.Open(dir, layers, mistral.Family(), qwen3.Family())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func load(t testing.TB, f *texttower.Files, opt texttower.Options) *texttower.Tower {
	t.Helper()
	tower, err := f.Load(t.Context(), device(t), opt)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tower.Close()) })
	return tower
}

func encode(t testing.TB, tower *texttower.Tower, prompts ...texttower.Prompt) (out [][]float32) {
	t.Helper()
	err := tower.Encode(t.Context(), prompts, func(_ int, rows []float32) error {
		out = append(out, append([]float32(nil), rows...))
		return nil
	})
	require.NoError(t, err)
	return out
}

// tol is the bound for hidden states, of the largest magnitude.
const tol = 1e-4

// promptOf makes a prompt of a row of ids and its mask.
func promptOf(ids, mask []int64) texttower.Prompt {
	p := texttower.Prompt{IDs: make([]int, len(ids)), First: -1}
	for i, id := range ids {
		p.IDs[i] = int(id)
		if mask[i] != 0 {
			if p.First < 0 {
				p.First = i
			}
			p.End = i + 1
		}
	}
	return p
}

func prompts(g *golden.File, prefix string) []texttower.Prompt {
	ids, shape := g.I64(prefix + "input_ids")
	mask, _ := g.I64(prefix + "attention_mask")
	n := shape[1]
	var out []texttower.Prompt
	for i := range shape[0] {
		out = append(out, promptOf(ids[i*n:(i+1)*n], mask[i*n:(i+1)*n]))
	}
	return out
}

func ints(t *testing.T, text string) (out []int) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	return out
}

// towers are the two families with their reference files. sdpa is what the
// names of hidden states and activations begin with.
var towers = map[string]struct {
	model, file, sdpa string
	family            texttower.Family
}{
	"mistral 3": {"tiny-dev", "text_mistral.safetensors", "sdpa.", mistral.Family()},
	"qwen3":     {"tiny-klein", "text_qwen.safetensors", "", qwen3.Family()},
}

func TestHiddenStatesAgainstReference(t *testing.T) {
	for name, c := range towers {
		t.Run(name, func(t *testing.T) {
			g := golden.Open(t, "golden", c.file)
			rows := prompts(g, "")
			for _, state := range g.Under(c.sdpa + "hidden.") {
				k, err := strconv.Atoi(state)
				require.NoError(t, err)
				compareRows(t, g, "hidden."+state, c.sdpa, rows, load(t, open(t, golden.Path(c.model, "text_encoder"), k), texttower.Options{QType: "none", Tokens: len(rows[0].IDs)}))
			}
			tower := load(t, open(t, golden.Path(c.model, "text_encoder"), ints(t, g.Meta("layers"))...), texttower.Options{QType: "none", Tokens: len(rows[0].IDs)})
			compareRows(t, g, "prompt_embeds", c.sdpa, rows, tower)
		})
	}
}

// compareRows compares what a tower makes of prompts with a tensor of the file.
// The reference's other way to attend, "eager", differs in the rows that see no
// token alone: where the file has it, the rows of real tokens must be the same.
func compareRows(t *testing.T, g *golden.File, name, sdpa string, list []texttower.Prompt, tower *texttower.Tower) {
	t.Helper()
	want, shape := g.Items(sdpa + name)
	got := encode(t, tower, list...)
	require.Len(t, got, len(want))
	for i := range got {
		golden.Near(t, name, got[i], want[i], tol)
		if eager := "eager." + name; g.Has(eager) {
			other, _ := g.Items(eager)
			lo, hi := list[i].First*shape[1], list[i].End*shape[1]
			golden.Near(t, eager, got[i][lo:hi], other[i][lo:hi], tol)
		}
	}
}

func TestActivationsAgainstReference(t *testing.T) {
	for name, c := range towers {
		t.Run(name, func(t *testing.T) {
			g := golden.Open(t, "golden", c.file)
			rows := prompts(g, "")
			tower := load(t, open(t, golden.Path(c.model, "text_encoder")), texttower.Options{QType: "none", Tokens: len(rows[0].IDs)})
			seen := map[string][]float32{}
			texttower.Tap(tower, func(stream gpu.Stream, name string, x tensor.Tensor) {
				stream.Do(func() error {
					seen[name] = append([]float32(nil), x.Float32s()...)
					return nil
				})
			})
			for i, p := range rows {
				encode(t, tower, p)
				for _, part := range g.Under(c.sdpa + "act.") {
					want, _ := g.Items(c.sdpa + "act." + part)
					got := seen[part]
					if strings.HasSuffix(part, "act_fn") {
						got = silu(seen[strings.Replace(part, "act_fn", "gate_proj", 1)])
					}
					golden.Near(t, part, got, want[i], tol)
				}
			}
		})
	}
}

func silu(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(float64(v) / (1 + math.Exp(-float64(v))))
	}
	return y
}

// TestPromptsAgainstReference goes from captions to embeddings.
func TestPromptsAgainstReference(t *testing.T) {
	short := golden.Open(t, "golden", towers["mistral 3"].file).Meta("short_system")
	shortened := mistral.Family()
	shortened.Template = mistral.Template(short)
	for name, c := range map[string]struct {
		tower    string
		family   texttower.Family
		prefix   string // of ids and mask
		embeds   []string
		captions func(g *golden.File) []string
	}{
		"mistral 3, a short system message": {"mistral 3", shortened, "pipe.", []string{"pipe.prompt_embeds"}, promptsOf(t)},
		"mistral 3, the system message":     {"mistral 3", mistral.Family(), "pipe_full.", []string{"pipe_full.prompt_embeds"}, promptsOf(t)},
		"mistral 3, cut":                    {"mistral 3", mistral.Family(), "trunc.", nil, func(*golden.File) []string { return []string{strings.Repeat("word ", 60)} }},
		"qwen3":                             {"qwen3", qwen3.Family(), "pipe.", []string{"pipe.prompt_embeds", "pipe.negative_embeds"}, promptsOf(t)},
	} {
		t.Run(name, func(t *testing.T) {
			tw := towers[c.tower]
			g := golden.Open(t, "golden", tw.file)
			want := prompts(g, c.prefix)
			p, err := texttower.NewPrompter(golden.Path(tw.model, "tokenizer"), c.family, len(want[0].IDs))
			require.NoError(t, err)
			captions := c.captions(g)
			var got []texttower.Prompt
			for i := range want {
				got = append(got, p.Prompt(captions[i]))
				require.Equal(t, name == "mistral 3, cut", got[i].Cut > 0)
				want[i].Cut = got[i].Cut
				require.Equal(t, want[i], got[i])
			}
			if c.embeds == nil {
				return
			}
			tower := load(t, open(t, golden.Path(tw.model, "text_encoder"), ints(t, g.Meta("layers"))...), texttower.Options{QType: "none", Tokens: len(want[0].IDs)})
			rows := encode(t, tower, got...)
			i := 0
			for _, n := range c.embeds {
				embeds, _ := g.Items(n)
				for _, e := range embeds {
					golden.Near(t, n, rows[i], e, tol)
					i++
				}
			}
			require.Len(t, rows, i)
		})
	}
}

func promptsOf(t *testing.T) func(g *golden.File) []string {
	return func(g *golden.File) (out []string) {
		require.NoError(t, json.Unmarshal([]byte(g.Meta("prompts")), &out))
		return out
	}
}

func TestQwenTextAgainstReference(t *testing.T) {
	g := golden.Open(t, "golden", towers["qwen3"].file)
	for i, caption := range promptsOf(t)(g) {
		require.Equal(t, g.Meta("text."+strconv.Itoa(i)), qwen3.Family().Prompt(caption))
	}
}
