package flux2_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/tensor"
	"longship/internal/flow"
	"longship/internal/flux2"
	"longship/internal/golden"
	"longship/internal/optim"
)

// The reference's training runs: AdamW, cosine schedule with warm-up, clipping,
// accumulation.
func TestLoRATrainingGolden(t *testing.T) {
	for _, kind := range []string{"dev", "klein"} {
		t.Run(kind, func(t *testing.T) {
			h := newHost(t)
			f := golden.Open(t, "golden", "lora_train_"+kind+".safetensors")
			c, from := files(t, "tiny-"+kind)
			set := h.set(c, layersOf(t, f, c), f, "init.")
			shape := shapeOf(t, f, "", false)
			m := h.model(c, weightSet(c, tensor.F32, from), set, shape)
			ctx := h.ctx(64 << 20)

			var log []struct {
				Step     int
				Losses   []float64
				GradNorm float64 `json:"grad_norm"`
				LR       float64
			}
			require.NoError(t, json.Unmarshal([]byte(f.Meta("log")), &log))
			accum := int(number(t, f, "accum"))
			opt, err := optim.New(h.dev, h.stream, optim.Config{Name: optim.AdamW, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8,
				WeightDecay: number(t, f, "wd")}, set.Blocks())
			require.NoError(t, err)
			defer opt.Close()
			clip, err := optim.NewClip(h.dev, number(t, f, "clip"), false, set.Blocks())
			require.NoError(t, err)
			defer clip.Close()
			// The reference's schedule is made for eight steps, of which it runs six.
			schedule := optim.Schedule{Name: optim.Cosine, Base: number(t, f, "lr"), Warmup: 2, Total: len(log) + 2}

			for k, want := range log {
				h.clearGrads(set)
				var losses, reference []float32
				for a := range accum {
					prefix := fmt.Sprintf("micro%d.", k*accum+a)
					b := h.flowBatch(f, prefix, shape, sigmas(f, prefix), ones(shape.B), float32(number(t, f, "guidance")))
					require.NoError(t, b.train(m, ctx, 1/float32(accum), flux2.TrainOptions{}))
					require.NoError(t, h.stream.Sync())
					losses, reference = append(losses, b.loss.Float32s()[0]), append(reference, float32(want.Losses[a]))
				}
				near(t, fmt.Sprintf("losses of step %d", k), reference, losses, valueTol)

				clip.Reset(ctx)
				for i := range set.Blocks() {
					clip.Measure(ctx, i)
				}
				require.InDelta(t, want.LR, schedule.LR(k), 1e-9)
				none := tensor.Tensor{}
				coef := clip.Limit(ctx, 0, none)
				opt.Count(ctx, none)
				for i := range set.Blocks() {
					opt.Update(ctx, i, schedule.LR(k), coef, none)
				}
				require.NoError(t, h.stream.Sync())
				near(t, fmt.Sprintf("gradient norm of step %d", k), []float32{float32(want.GradNorm)}, clip.Norms().Float32s(), valueTol)

				for _, p := range set.Params() {
					if at := fmt.Sprintf("after%d.%s", k, diffusersName(p)); f.Has(at) {
						value, _ := f.F32(at)
						// Adam divides by the gradient's size, so where that is near the
						// float32 noise an element tells nothing; the tensor as a whole does.
						nearL2(t, at, value, p.Value.Float32s(), valueTol)
						require.InDeltaSlice(t, value, p.Value.Float32s(), valueTol)
					}
				}
			}
		})
	}
}

// sigmas returns the noise levels of a micro-batch from its timestep indices.
func sigmas(f *golden.File, prefix string) []float32 {
	idx, _ := f.I64(prefix + "idx")
	out := make([]float32, len(idx))
	for i, k := range idx {
		out[i] = float32(flow.Steps-k) / flow.Steps
	}
	return out
}
