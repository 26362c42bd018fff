package train

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/adapter"
	"longship/internal/golden"
	"longship/internal/optim"
	"longship/stages/port"
)

// reference is a recorded training run: what went into every micro-batch, and
// the adapter and log that came of it.
type reference struct {
	*golden.File
	t testing.TB
}

func (r reference) number(key string) float64 {
	v, err := strconv.ParseFloat(r.Meta(key), 64)
	require.NoError(r.t, err, key)
	return v
}

// shape reads the batch's shape from the token ids (T, H, W, L).
func (r reference) shape() port.Shape {
	ids, dims := r.I64("img_ids")
	s := port.Shape{B: dims[0], L: r.Shape("txt_ids")[1]}
	for ; len(ids) > 0; ids = ids[4:] {
		s.H, s.W = max(s.H, int(ids[1])+1), max(s.W, int(ids[2])+1)
	}
	return s
}

// tokens returns a tensor [B, C, h, w] as tokens [B, h·w, C].
func (r reference) tokens(name string) []float32 {
	x, dims := r.F32(name)
	b, c, n := dims[0], dims[1], dims[2]*dims[3]
	out := make([]float32, len(x))
	for i := range b {
		for k := range c {
			for p := range n {
				out[(i*n+p)*c+k] = x[(i*c+k)*n+p]
			}
		}
	}
	return out
}

// fileName is the stem of a parameter's name in the file: the module or part by
// its name in the diffusers layout.
func fileName(p adapter.Param) string {
	name := p.Layer.Name()
	if p.Layer.Whole() && len(p.Layer.Module.Parts) == 1 {
		name = p.Layer.Module.Parts[0].Name
	}
	return name + "." + p.Part + ".weight"
}

// The step code is given the recorded micro-batches, and must follow the
// reference's losses, norms and adapters for the whole of the recorded run.
func TestTrainingMatchesReference(t *testing.T) {
	for _, kind := range []string{"dev", "klein"} {
		for again := range keeps {
			t.Run(kind+"/recompute="+again, func(t *testing.T) {
				r := reference{golden.Open(t, "golden", "lora_train_"+kind+".safetensors"), t}
				var log []struct {
					Step     int
					Losses   []float64
					GradNorm float64 `json:"grad_norm"`
					LR       float64
				}
				golden.JSON(t, &log, "golden", "lora_train_"+kind+".json")
				tr := r.trainer(kind, again)
				micro := 0
				for _, want := range log {
					for i := range want.Losses {
						r.micro(tr, micro, i, i == len(want.Losses)-1, want.LR)
						micro++
					}
					tr.board.post(want.Step+1, want.LR)
					got, err := tr.board.read(context.Background())
					require.NoError(t, err)
					require.False(t, got.skipped)
					require.Equal(t, want.Step+1, got.taken)
					for i, l := range want.Losses {
						require.InEpsilon(t, l, got.losses[i], 1e-4, "loss of step %d, micro-batch %d", want.Step, i)
					}
					require.InEpsilon(t, want.GradNorm, got.norm, 1e-4, "norm of step %d", want.Step)
					r.compareAdapter(tr, fmt.Sprintf("after%d.", want.Step))
				}
			})
		}
	}
}

// trainer builds the recorded run's trainer, with its starting values.
func (r reference) trainer(kind, again string) *trainer {
	var targets []string
	require.NoError(r.t, json.Unmarshal([]byte(r.Meta("targets")), &targets))
	cfg, set := modelFolder(r.t, "tiny-"+kind)
	chosen, err := adapter.Select(cfg.Modules(), targets, nil)
	require.NoError(r.t, err)
	p := plan{
		model: cfg, shapes: []port.Shape{r.shape()},
		layers: adapter.Layers(chosen, int(r.number("r")), r.number("alpha")), dtype: f32, init: adapter.Kaiming,
		guidance: r.number("guidance"), micros: int(r.number("accum")),
		optimizer: optim.Config{Name: optim.AdamW, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: r.number("wd")},
		clip:      r.number("clip"), scope: scopeGlobal, recompute: again, act: f32,
	}
	tr := newTestTrainer(r.t, p, resident(r.t, set))
	require.NoError(r.t, tr.set.Write(tr.compute, func(p adapter.Param, dst []float32) error {
		x, _ := r.F32("init." + fileName(p))
		require.Len(r.t, dst, len(x), fileName(p))
		copy(dst, x)
		return nil
	}))
	return tr
}

// micro runs the recorded micro-batch n.
func (r reference) micro(tr *trainer, n, i int, last bool, lr float64) {
	name := fmt.Sprintf("micro%d.", n)
	sh := r.shape()
	b := tr.hostBatch(r.t, sh)
	copy(b.Latent.Float32s(), r.tokens(name+"x0"))
	txt, _ := r.F32(name + "txt")
	copy(b.Text.Float32s(), txt)
	noise := r.tokens(name + "noise")
	idx, _ := r.I64(name + "idx")
	d, err := tr.draws.fill(context.Background(), sh, func(b int, dst []float32) (sigma, weight float64) {
		copy(dst, noise[b*len(dst):])
		return float64(1000-idx[b]) / 1000, 1
	})
	require.NoError(r.t, err)
	require.NoError(r.t, tr.micro(b, d, i, last, optim.Step{LR: lr}))
	require.NoError(r.t, tr.compute.Sync())
}

// compareAdapter compares all parameters with the recorded ones, if these are
// recorded: within 1e-4 in L2, and nowhere further off than that. Adam divides a
// gradient by its own size, so of an element whose gradient is rounding noise
// only the tensor as a whole can be compared.
func (r reference) compareAdapter(tr *trainer, prefix string) {
	require.NoError(r.t, tr.set.Read(tr.compute, func(p adapter.Param, got []float32) error {
		name := prefix + fileName(p)
		if !r.Has(name) {
			return nil
		}
		want, _ := r.F32(name)
		require.InDeltaSlice(r.t, want, got, 1e-4, name)
		var diff, norm float64
		for i, w := range want {
			d := float64(got[i]) - float64(w)
			diff += d * d
			norm += float64(w) * float64(w)
		}
		if !(math.Sqrt(diff) <= 1e-4*math.Sqrt(norm)) {
			r.t.Errorf("%s: relative L2 distance %.3g", name, math.Sqrt(diff/norm))
		}
		return nil
	}))
}
