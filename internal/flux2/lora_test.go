package flux2_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/flow"
	"longship/internal/flux2"
	"longship/internal/golden"
	"longship/internal/safetensors"
)

// layersOf returns the pairs that a golden file's metadata describes.
func layersOf(t testing.TB, f *golden.File, c flux2.Config) []adapter.Layer {
	var names []string
	require.NoError(t, json.Unmarshal([]byte(f.Meta("targets")), &names))
	targets, err := adapter.Select(c.Modules(), names, nil)
	require.NoError(t, err)
	require.Len(t, targets, len(names))
	return adapter.Layers(targets, int(f.Number("r")), f.Number("alpha"))
}

// diffusersName is the reference's name of a parameter.
func diffusersName(p adapter.Param) string {
	name := p.Layer.Name()
	if p.Layer.Whole() {
		name = p.Layer.Module.Parts[0].Name
	}
	return name + "." + p.Part + ".weight"
}

// set takes memory for pairs and gives them a golden file's values.
func (h *host) set(c flux2.Config, layers []adapter.Layer, f *golden.File, prefix string) *adapter.Set {
	s, err := adapter.New(h.dev, c.Blocks(), layers, tensor.F32)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { require.NoError(h.t, s.Close()) })
	require.NoError(h.t, s.Write(h.stream, func(p adapter.Param, dst []float32) error {
		data, shape := f.F32(prefix + diffusersName(p))
		require.Equal(h.t, shape, p.Value.Shape)
		copy(dst, data)
		return nil
	}))
	return s
}

func (h *host) clearGrads(s *adapter.Set) {
	for _, b := range s.Blocks() {
		h.stream.Launch(ops.Zero{Y: b.Grads})
	}
}

// flowBatch is a batch of flow matching on the device.
type flowBatch struct {
	in             flux2.Input
	xt, target     tensor.Tensor
	weight         tensor.Tensor
	loss, samples  tensor.Tensor
	pred           []float32
	x0, noise, sig tensor.Tensor
}

// flowBatch reads x0, noise and text under a prefix; sigma are the noise levels.
func (h *host) flowBatch(f *golden.File, prefix string, shape flux2.Shape, sigma, weight []float32, guidance float32) *flowBatch {
	x0, dims := f.Tokens(prefix + "x0")
	noise, _ := f.Tokens(prefix + "noise")
	b := &flowBatch{
		x0: h.tensor(x0, dims...), noise: h.tensor(noise, dims...), sig: h.tensor(sigma, len(sigma)),
		xt: h.tensor(nil, dims...), target: h.tensor(nil, dims...), weight: h.tensor(weight, len(weight)),
		loss: h.tensor(nil, 1), samples: h.tensor(nil, len(sigma)),
	}
	g := make([]float32, len(sigma))
	for i := range g {
		g[i] = guidance
	}
	b.in = flux2.Input{Shape: shape, Tokens: b.xt, Text: h.load(f, prefix+"txt"), Timestep: b.sig, Guidance: h.tensor(g, len(g))}
	return b
}

// train queues one micro-batch.
func (b *flowBatch) train(m *flux2.Model, c *ops.Ctx, gradScale float32, opt flux2.TrainOptions) error {
	c.Run(ops.FlowMix{XT: b.xt, Target: b.target, X0: b.x0, Noise: b.noise, Sigma: b.sig})
	return m.Train(c, b.in, func(c *ops.Ctx, pred, dpred tensor.Tensor) {
		c.Run(ops.FlowLoss{Loss: b.loss, Samples: b.samples, DV: dpred, V: pred, Target: b.target, Weight: b.weight, GradScale: gradScale})
		c.Stream.Do(func() error { b.pred = contiguous(pred); return nil })
	}, opt)
}

// gradGuidance returns the guidance that the reference's gradients were taken at,
// 3.5 where the file does not say it. A model without a guidance embedder ignores it.
func gradGuidance(f *golden.File) float32 {
	if f.Meta("guidance") == "" {
		return 3.5
	}
	return float32(f.Number("guidance"))
}

func TestLoRAGradientsGolden(t *testing.T) {
	for _, kind := range []string{"dev", "klein"} {
		t.Run(kind, func(t *testing.T) {
			h := newHost(t)
			f := golden.Open(t, "golden", "lora_grad_"+kind+".safetensors")
			c, from := files(t, "tiny-"+kind)
			set := h.set(c, layersOf(t, f, c), f, "lora.")
			plain, refs := shapeOf(t, f, "in.", false), shapeOf(t, f, "in.", true)
			m := h.model(c, weightSet(c, tensor.F32, from), set, plain, refs)
			ctx := h.ctx(64 << 20)
			sigma, _ := f.F32("in.timestep")
			guidance := gradGuidance(f)

			for _, name := range f.Names() {
				name, ok := strings.CutSuffix(name, ".loss")
				if !ok {
					continue
				}
				t.Run(name, func(t *testing.T) {
					scheme, special, _ := strings.Cut(name, ".")
					weight := make([]float32, len(sigma))
					for i, s := range sigma {
						weight[i] = float32(flow.DensityWeight(scheme, float64(s)))
						if special == "prior" { // the second half are the class images
							weight[i] *= 2
							if i >= len(sigma)/2 {
								weight[i] *= float32(f.Number("prior_weight"))
							}
						}
					}
					b := h.flowBatch(f, "in.", plain, sigma, weight, guidance)
					if special == "refs" {
						b.in.Shape, b.in.Refs = refs, h.load(f, "in.ref_tokens")
					}
					h.clearGrads(set)
					require.NoError(t, b.train(m, ctx, 1, flux2.TrainOptions{}))
					require.NoError(t, h.stream.Sync())
					compareLoRA(t, f, name, b, set)
				})
			}
		})
	}
}

// compareLoRA compares what the file has of a case: loss, prediction,
// gradients, their norm.
func compareLoRA(t *testing.T, f *golden.File, name string, b *flowBatch, set *adapter.Set) {
	loss, _ := f.F32(name + ".loss")
	golden.Near(t, "loss", b.loss.Float32s(), loss, valueTol)
	if f.Has(name + ".pred") {
		pred, _ := f.Tokens(name + ".pred")
		golden.Near(t, "pred", b.pred, pred, valueTol)
	}
	var sum float64
	grads := map[string][]float32{}
	for _, p := range set.Params() {
		grad := p.Grad.Float32s()
		for _, g := range grad {
			sum += float64(g) * float64(g)
		}
		grads[diffusersName(p)] = grad
	}
	if f.Has(name + ".pred") { // the file has the gradients of such a case
		for _, of := range f.Under(name + ".grad.") {
			want, _ := f.F32(name + ".grad." + of)
			golden.NearL2(t, of, grads[of], want, gradTol)
		}
	}
	norm, _ := f.F32(name + ".grad_norm")
	golden.Near(t, "gradient norm", []float32{float32(math.Sqrt(sum))}, norm, valueTol)
}

// The gradient of a frozen weight of the blocks, dW = dyᵀ·x, is that of B in a
// pair with A = 1 and B = 0. So the reference's gradients of weights, which
// training never computes, hold the backward pass to account at every Linear.
func TestWeightGradientsGolden(t *testing.T) {
	for _, kind := range []string{"dev", "klein"} {
		t.Run(kind, func(t *testing.T) {
			h := newHost(t)
			f := golden.Open(t, "golden", "transformer_"+kind+".safetensors")
			c, from := files(t, "tiny-"+kind)
			var layers []adapter.Layer
			for _, m := range c.Modules() {
				layers = append(layers, adapter.Layer{Target: adapter.Target{Module: m, Hi: m.Out}, Rank: m.In, Alpha: float64(m.In)})
			}
			set, err := adapter.New(h.dev, c.Blocks(), layers, tensor.F32)
			require.NoError(t, err)
			defer func() { require.NoError(t, set.Close()) }()
			require.NoError(t, set.Write(h.stream, func(p adapter.Param, dst []float32) error {
				if p.Part == adapter.PartA {
					for i := range p.Layer.Rank {
						dst[i*p.Layer.Rank+i] = 1
					}
				}
				return nil
			}))

			shape := shapeOf(t, f, "", false)
			m := h.model(c, weightSet(c, tensor.F32, from), set, shape)
			in := flux2.Input{Shape: shape, Tokens: h.load(f, "hidden_states"), Text: h.load(f, "txt"),
				Timestep: h.load(f, "timestep"), Guidance: h.load(f, "guidance")}
			up, _ := f.F32("grad_output")
			require.NoError(t, m.Train(h.ctx(64<<20), in, func(c *ops.Ctx, _, dpred tensor.Tensor) {
				c.Stream.Do(func() error { copy(dpred.Float32s(), up); return nil })
			}, flux2.TrainOptions{}))
			require.NoError(t, h.stream.Sync())
			for _, p := range set.Params() {
				if p.Part == adapter.PartA {
					continue
				}
				for _, part := range p.Layer.Module.Parts {
					want, shape := f.F32("grad.param." + part.Name + ".weight")
					require.Equal(t, []int{part.Hi - part.Lo, p.Layer.Module.In}, shape)
					golden.NearL2(t, part.Name, p.Grad.RowRange(part.Lo, part.Hi).Float32s(), want, gradTol)
				}
			}
		})
	}
}

// The adapter files of every layout, applied to the model they were made for.
func TestLoRAOutputsGolden(t *testing.T) {
	f := golden.Open(t, "golden", "lora_outputs.safetensors")
	c, from := files(t, "tiny-dev")
	for file, want := range map[string]string{
		"":                               "base",
		"diffusers/pytorch_lora_weights": "lora",
		"diffusers_folded":               "lora",
		"bfl_lora_ab":                    "bfl_lora",
		"comfy_alpha":                    "bfl_lora",
		"kohya":                          "bfl_lora",
		"bfl_fused_shared":               "fused_shared",
		"kohya_fused_shared":             "fused_shared_kohya",
	} {
		t.Run(want+" "+file, func(t *testing.T) {
			h := newHost(t)
			shape := shapeOf(t, f, "in.", false)
			set := h.emptySet(c)
			if file != "" {
				set = h.readSet(c, file)
			}
			m := h.model(c, weightSet(c, tensor.F32, from), set, shape)
			in := flux2.Input{Shape: shape, Tokens: h.load(f, "in.hidden_states"), Text: h.load(f, "in.txt"),
				Timestep: h.load(f, "in.timestep"), Guidance: h.load(f, "in.guidance")}
			out, dims := f.F32(want)
			pred := h.tensor(nil, dims...)
			require.NoError(t, m.Forward(h.ctx(64<<20), in, pred))
			require.NoError(t, h.stream.Sync())
			golden.Near(t, "output", pred.Float32s(), out, valueTol)
		})
	}
}

func (h *host) emptySet(c flux2.Config) *adapter.Set {
	s, err := adapter.New(h.dev, c.Blocks(), nil, tensor.F32)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { require.NoError(h.t, s.Close()) })
	return s
}

func (h *host) readSet(c flux2.Config, file string) *adapter.Set {
	st, err := safetensors.Open(golden.Path("lora", file+".safetensors"))
	require.NoError(h.t, err)
	h.t.Cleanup(func() { st.Close() })
	pairs, err := adapter.Read(st, c.Modules())
	require.NoError(h.t, err)
	s, err := adapter.New(h.dev, c.Blocks(), pairs.Layers, tensor.F32)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { require.NoError(h.t, s.Close()) })
	require.NoError(h.t, pairs.Write(s, h.stream))
	return s
}
