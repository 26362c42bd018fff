package flux2_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/flux2"
	"longship/internal/golden"
	"longship/internal/nn"
)

// recorder copies everything named that passes through a model.
type recorder struct {
	seen map[string][]float32
}

func (r *recorder) record(c *ops.Ctx, name string, t tensor.Tensor) {
	c.Stream.Do(func() error {
		r.seen[name] = contiguous(t)
		return nil
	})
}

func contiguous(t tensor.Tensor) []float32 {
	rows := tensor.Host[float32](t)
	out := make([]float32, 0, t.Len())
	for i := range t.Rows() {
		at := i * t.Stride
		if t.Contiguous() {
			at = i * t.Cols()
		}
		out = append(out, rows[at:at+t.Cols()]...)
	}
	return out
}

// Wrap records what goes into every Linear (name + ".in") and comes out (name).
func (r *recorder) Wrap(name string, base nn.Linear) nn.Linear { return tapped{r, name, base} }
func (r *recorder) Trains(string) bool                         { return false }

type tapped struct {
	r    *recorder
	name string
	nn.Linear
}

func (l tapped) Forward(c *ops.Ctx, y, x tensor.Tensor) {
	l.Linear.Forward(c, y, x)
	l.r.record(c, l.name+".in", x)
	if y.Valid() {
		l.r.record(c, l.name, y)
	}
}

// shapeOf reads a batch's shape from the token ids of a golden file.
func shapeOf(t testing.TB, f *golden.File, prefix string, refs bool) flux2.Shape {
	grids, batch := f.Grids(prefix + "img_ids")
	require.Len(t, grids, 1)
	s := flux2.Shape{B: batch, H: grids[0][0], W: grids[0][1], L: f.Shape(prefix + "txt_ids")[1]}
	if refs {
		s.Refs, _ = f.Grids(prefix + "ref_ids")
	}
	return s
}

// load puts a tensor of a golden file on the device; the zero Tensor where it has none.
func (h *host) load(f *golden.File, name string) tensor.Tensor {
	if !f.Has(name) {
		return tensor.Tensor{}
	}
	data, shape := f.F32(name)
	return h.tensor(data, shape...)
}

func TestTransformerGolden(t *testing.T) {
	for _, kind := range []string{"dev", "klein", "hd128"} {
		t.Run(kind, func(t *testing.T) {
			h := newHost(t)
			f := golden.Open(t, "golden", "transformer_"+kind+".safetensors")
			c, from := files(t, "tiny-"+kind)
			stated, err := flux2.ParseConfig([]byte(f.Meta("config")))
			require.NoError(t, err)
			require.Equal(t, stated, c)

			plain, refs := shapeOf(t, f, "", false), shapeOf(t, f, "", true)
			r := &recorder{seen: map[string][]float32{}}
			m := h.model(c, weightSet(c, tensor.F32, from), r, plain, refs)
			in := flux2.Input{Shape: plain, Tokens: h.load(f, "hidden_states"), Text: h.load(f, "txt"),
				Timestep: h.load(f, "timestep"), Guidance: h.load(f, "guidance")}
			ctx := h.ctx(64 << 20)

			t.Run("output", func(t *testing.T) {
				m.Probe = r.record
				want, shape := f.F32("output")
				pred := h.tensor(nil, shape...)
				require.NoError(t, m.Forward(ctx, in, pred))
				require.NoError(t, h.stream.Sync())
				golden.Near(t, "output", pred.Float32s(), want, valueTol)
				m.Probe = nil
			})
			t.Run("activations", func(t *testing.T) { compareActivations(t, f, c, r) })
			t.Run("references", func(t *testing.T) {
				in := in
				in.Shape, in.Refs = refs, h.load(f, "ref_tokens")
				want, shape := f.F32("ref.output")
				pred := h.tensor(nil, shape...)
				require.NoError(t, m.Forward(ctx, in, pred))
				require.NoError(t, h.stream.Sync())
				golden.Near(t, "ref.output", pred.Float32s(), want, valueTol)
			})
			t.Run("input gradients", func(t *testing.T) {
				up, _ := f.F32("grad_output")
				wantTokens, tokens := f.F32("grad.hidden_states")
				wantText, text := f.F32("grad.txt")
				grads := flux2.InputGrads{Tokens: h.tensor(nil, tokens...), Text: h.tensor(nil, text...)}
				loss := func(c *ops.Ctx, _, dpred tensor.Tensor) {
					c.Stream.Do(func() error { copy(dpred.Float32s(), up); return nil })
				}
				require.NoError(t, m.Train(ctx, in, loss, flux2.TrainOptions{Inputs: grads}))
				require.NoError(t, h.stream.Sync())
				golden.NearL2(t, "grad.hidden_states", grads.Tokens.Float32s(), wantTokens, gradTol)
				golden.NearL2(t, "grad.txt", grads.Text.Float32s(), wantText, gradTol)
				golden.Near(t, "grad.hidden_states", grads.Tokens.Float32s(), wantTokens, valueTol)
				golden.Near(t, "grad.txt", grads.Text.Float32s(), wantText, valueTol)
			})
			t.Run("noise", func(t *testing.T) {
				x0, dims := f.Tokens("x0")
				noise, _ := f.Tokens("noise")
				xt, target := h.tensor(nil, dims...), h.tensor(nil, dims...)
				ctx.Run(ops.FlowMix{XT: xt, Target: target, X0: h.tensor(x0, dims...), Noise: h.tensor(noise, dims...), Sigma: in.Timestep})
				require.NoError(t, h.stream.Sync())
				golden.Near(t, "hidden_states", xt.Float32s(), in.Tokens.Float32s(), 1e-6)
			})
			t.Run("rope", func(t *testing.T) {
				cos, sin := flux2.Rope(c, flux2.Positions(plain))
				wantCos, _ := f.F32("rope.cos")
				wantSin, _ := f.F32("rope.sin")
				golden.Near(t, "cos", cos, wantCos, 1e-6)
				golden.Near(t, "sin", sin, wantSin, 1e-6)
			})
		})
	}
}

// compareActivations compares every activation of the reference. Norms come out
// modulated and queries and keys rotated here, so the reference's are brought to
// the same; silu(gate) before its product and the last norm before its modulation
// have no counterpart. The sinusoid has a test of its own, with its op.
func compareActivations(t *testing.T, f *golden.File, c flux2.Config, r *recorder) {
	var compared, left int
	for _, act := range f.Under("act.") {
		want, shape := f.F32("act." + act)
		switch {
		case strings.HasSuffix(act, ".gate_fn") || act == "norm_out.norm" || act == "time_guidance_embed.time_proj" || strings.HasPrefix(act, "pos_embed"):
			left++
			continue
		case normNames[lastName(act)].ours != "":
			n := normNames[lastName(act)]
			want = modulated(want, shape, reference(f, "act."+n.modulation), n.set)
		case headNames[lastName(act)] != "":
			want = rotated(f, act, want, shape)
		}
		got, ok := activation(c, r, act, shape)
		require.True(t, ok, "%s is not compared", act)
		compared++
		golden.Near(t, act, got, want, valueTol)
	}
	t.Logf("%d activations compared, %d have no counterpart", compared, left)
	require.NotZero(t, compared)
}

// activation returns what the recorder saw for an activation of the reference.
func activation(c flux2.Config, r *recorder, act string, shape []int) ([]float32, bool) {
	cols := shape[len(shape)-1]
	switch {
	case act == "norm_out.linear": // diffusers has the scale first
		return swapHalves(r.seen["final_layer.adaLN_modulation.1"], cols), true
	case strings.HasSuffix(act, ".mlp_act_fn"):
		all := r.seen[single(act)+".linear2.in"]
		return columns(all, c.Width()+c.Inner(), c.Width(), c.Width()+c.Inner()), true
	}
	if got, ok := r.seen[outerNames[act]]; ok {
		return got, true
	}
	for _, m := range c.Modules() {
		for _, p := range m.Parts {
			if p.Name == act {
				return columns(r.seen[m.Name], m.Out, p.Lo, p.Hi), true
			}
		}
	}
	if got, ok := r.seen[blockName(act)]; ok {
		return got, true
	}
	return nil, false
}

// outerNames maps the reference's names outside the blocks to ours.
var outerNames = map[string]string{
	"x_embedder":                                     "img_in",
	"context_embedder":                               "txt_in",
	"double_stream_modulation_img":                   "double_stream_modulation_img.lin",
	"double_stream_modulation_img.linear":            "double_stream_modulation_img.lin",
	"double_stream_modulation_img.act_fn":            "vec.silu",
	"double_stream_modulation_txt":                   "double_stream_modulation_txt.lin",
	"double_stream_modulation_txt.linear":            "double_stream_modulation_txt.lin",
	"double_stream_modulation_txt.act_fn":            "vec.silu",
	"single_stream_modulation":                       "single_stream_modulation.lin",
	"single_stream_modulation.linear":                "single_stream_modulation.lin",
	"single_stream_modulation.act_fn":                "vec.silu",
	"norm_out.silu":                                  "vec.silu",
	"norm_out":                                       "final_layer.norm",
	"proj_out":                                       "final_layer.linear",
	"time_guidance_embed":                            "vec",
	"time_guidance_embed.timestep_embedder":          "time_in.out_layer",
	"time_guidance_embed.timestep_embedder.linear_1": "time_in.in_layer",
	"time_guidance_embed.timestep_embedder.act":      "time_in.silu",
	"time_guidance_embed.timestep_embedder.linear_2": "time_in.out_layer",
	"time_guidance_embed.guidance_embedder":          "guidance_in.out_layer",
	"time_guidance_embed.guidance_embedder.linear_1": "guidance_in.in_layer",
	"time_guidance_embed.guidance_embedder.act":      "guidance_in.silu",
	"time_guidance_embed.guidance_embedder.linear_2": "guidance_in.out_layer",
}

// blockName maps what the reference calls a block, or a part that is no Linear, to ours.
func blockName(act string) string {
	var i int
	var rest string
	if n, _ := fmt.Sscanf(act, "single_transformer_blocks.%d", &i); n == 1 {
		rest = strings.TrimPrefix(act, fmt.Sprintf("single_transformer_blocks.%d", i))
		part, ok := map[string]string{"": "", ".attn": ".linear2", ".norm": ".linear1.in", ".attn.norm_q": ".norm.query_norm", ".attn.norm_k": ".norm.key_norm"}[rest]
		if !ok {
			return ""
		}
		return fmt.Sprintf("single_blocks.%d%s", i, part)
	}
	if n, _ := fmt.Sscanf(act, "transformer_blocks.%d", &i); n != 1 {
		return ""
	}
	rest = strings.TrimPrefix(act, fmt.Sprintf("transformer_blocks.%d", i))
	ours := fmt.Sprintf("double_blocks.%d.", i)
	if n := normNames[lastName(act)]; n.ours != "" {
		return ours + n.ours
	}
	if n := headNames[lastName(act)]; n != "" {
		return ours + n
	}
	part, ok := map[string]string{
		".0": "txt", ".1": "img", ".attn.0": "img_attn.proj", ".attn.1": "txt_attn.proj",
		".ff": "img_mlp.2", ".ff.act_fn": "img_mlp.2.in", ".ff_context": "txt_mlp.2", ".ff_context.act_fn": "txt_mlp.2.in",
	}[rest]
	if !ok {
		return ""
	}
	return ours + part
}

// normNames are the reference's norms in blocks: where ours comes out, and the
// modulation, by its set, that ours has applied.
var normNames = map[string]struct {
	ours, modulation string
	set              int
}{
	"norm1":         {"img_attn.qkv.in", "double_stream_modulation_img", 0},
	"norm2":         {"img_mlp.0.in", "double_stream_modulation_img", 1},
	"norm1_context": {"txt_attn.qkv.in", "double_stream_modulation_txt", 0},
	"norm2_context": {"txt_mlp.0.in", "double_stream_modulation_txt", 1},
	"norm":          {"linear1.in", "single_stream_modulation", 0},
}

// headNames are the reference's norms of queries and keys.
var headNames = map[string]string{
	"norm_q": "img_attn.norm.query_norm", "norm_k": "img_attn.norm.key_norm",
	"norm_added_q": "txt_attn.norm.query_norm", "norm_added_k": "txt_attn.norm.key_norm",
}

func lastName(act string) string { return act[strings.LastIndex(act, ".")+1:] }

func reference(f *golden.File, name string) []float32 {
	data, _ := f.F32(name)
	return data
}

// modulated returns (1 + scale)·x + shift for x [B, S, D], by set of m [B, sets·3·D].
func modulated(x []float32, shape []int, m []float32, set int) []float32 {
	b, s, d := shape[0], shape[1], shape[2]
	out := make([]float32, len(x))
	for i := range x {
		sample, j := i/(s*d), i%d
		at := m[sample*len(m)/b+3*set*d:]
		out[i] = (1+at[d+j])*x[i] + at[j]
	}
	return out
}

// rotated returns x [B, S, H, hd] turned by the reference's tables; the text's
// rows come first in them.
func rotated(f *golden.File, act string, x []float32, shape []int) []float32 {
	cos, tables := f.F32("rope.cos")
	sin, _ := f.F32("rope.sin")
	s, h, hd := shape[1], shape[2], shape[3]
	first := 0
	if !strings.Contains(act, "added") {
		first = tables[0] - s // image rows; all rows in a single block
	}
	out := make([]float32, len(x))
	for i := 0; i < len(x); i += 2 {
		at := (first+i/(h*hd)%s)*hd + i%hd
		out[i] = x[i]*cos[at] - x[i+1]*sin[at]
		out[i+1] = x[i+1]*cos[at+1] + x[i]*sin[at+1]
	}
	return out
}

func single(act string) string {
	var i int
	fmt.Sscanf(act, "single_transformer_blocks.%d", &i)
	return fmt.Sprintf("single_blocks.%d", i)
}

func columns(data []float32, width, lo, hi int) []float32 {
	var out []float32
	for ; len(data) > 0; data = data[width:] {
		out = append(out, data[lo:hi]...)
	}
	return out
}

func swapHalves(data []float32, width int) []float32 {
	var out []float32
	for ; len(data) > 0; data = data[width:] {
		out = append(out, data[width/2:width]...)
		out = append(out, data[:width/2]...)
	}
	return out
}
