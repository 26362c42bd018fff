package flux2_test

import (
	"encoding/json"
	"math"
	"strconv"
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
	return adapter.Layers(targets, int(number(t, f, "r")), number(t, f, "alpha"))
}

func number(t testing.TB, f *golden.File, key string) float64 {
	v, err := strconv.ParseFloat(f.Meta(key), 64)
	require.NoError(t, err, key)
	return v
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
	s, err := adapter.New(h.dev, c.Blocks(), layers)
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

// tokens reads an image of a golden file, [B, C, h, w], as tokens [B, h·w, C].
func tokens(f *golden.File, name string) ([]float32, []int) {
	data, s := f.F32(name)
	b, c, n := s[0], s[1], s[2]*s[3]
	out := make([]float32, len(data))
	for i := range b {
		for j := range c {
			for k := range n {
				out[(i*n+k)*c+j] = data[(i*c+j)*n+k]
			}
		}
	}
	return out, []int{b, n, c}
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
	x0, dims := tokens(f, prefix+"x0")
	noise, _ := tokens(f, prefix+"noise")
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

// gradGuidance is the guidance that the reference's gradients were taken at.
const gradGuidance = 3.5

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
								weight[i] *= float32(number(t, f, "prior_weight"))
							}
						}
					}
					b := h.flowBatch(f, "in.", plain, sigma, weight, gradGuidance)
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
	near(t, "loss", loss, b.loss.Float32s(), valueTol)
	if f.Has(name + ".pred") {
		pred, _ := tokens(f, name+".pred")
		near(t, "pred", pred, b.pred, valueTol)
	}
	var sum float64
	for _, p := range set.Params() {
		grad := p.Grad.Float32s()
		for _, g := range grad {
			sum += float64(g) * float64(g)
		}
		if at := name + ".grad." + diffusersName(p); f.Has(at) {
			want, _ := f.F32(at)
			nearL2(t, p.Name(), want, grad, gradTol)
		}
	}
	norm, _ := f.F32(name + ".grad_norm")
	near(t, "gradient norm", norm, []float32{float32(math.Sqrt(sum))}, valueTol)
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
			near(t, "output", out, pred.Float32s(), valueTol)
		})
	}
}

func (h *host) emptySet(c flux2.Config) *adapter.Set {
	s, err := adapter.New(h.dev, c.Blocks(), nil)
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
	s, err := adapter.New(h.dev, c.Blocks(), pairs.Layers)
	require.NoError(h.t, err)
	h.t.Cleanup(func() { require.NoError(h.t, s.Close()) })
	require.NoError(h.t, pairs.Write(s, h.stream))
	return s
}
