package train

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/tensor"
	"longship/internal/optim"
	"longship/pipeline"
)

func TestDefaultIsValid(t *testing.T) {
	c := Default()
	require.NoError(t, c.Validate())
	require.Equal(t, 16.0, c.Network.alpha(), "alpha is the rank unless said otherwise")
	require.Equal(t, 1.0, c.clipNorm())
}

func TestOtherNames(t *testing.T) {
	c := Default()
	c.Network.Linear, c.Network.LinearAlpha, c.MaxGradNorm = 8, 4, 0.5
	require.NoError(t, c.Validate())
	require.Equal(t, 8, c.Network.rank())
	require.Equal(t, 4.0, c.Network.alpha())
	require.Equal(t, 0.5, c.clipNorm())
}

func TestTypeOfTheAdapter(t *testing.T) {
	for _, c := range []struct {
		dtype string
		rank  int
		want  tensor.DType
	}{{"auto", 127, tensor.F32}, {"auto", 128, tensor.BF16}, {"float32", 2048, tensor.F32}, {"bfloat16", 4, tensor.BF16}} {
		require.Equal(t, c.want, (&Network{Rank: 16, Linear: c.rank, DType: c.dtype}).dtype(), "%s at rank %d", c.dtype, c.rank)
	}
}

func TestEveryFaultIsNamed(t *testing.T) {
	c := &Config{
		LRScheduler: "cosin", LRWarmupSteps: -1, LR: -1, Optimizer: "adam", OptimizerParams: OptimizerParams{Betas: []float64{1}, Eps: 0, WeightDecay: 2},
		Clip: Clip{Scope: "all"}, EMA: EMA{Decay: 2}, Network: Network{Type: "lokr", Init: "zero", Rank: 4, Linear: 8, DType: "fp8", Alpha: 1, LinearAlpha: 2},
		TimestepType: "sigmiod", Guidance: -1, ValidateEvery: -1, Recompute: "all", DType: "fp64",
	}
	got := map[string]bool{}
	for _, err := range c.Validate().(interface{ Unwrap() []error }).Unwrap() {
		var field *pipeline.FieldError
		require.True(t, errors.As(err, &field), "%v has no place", err)
		got[field.Path] = true
	}
	for _, path := range []string{
		"steps", "lr", "lr_scheduler", "lr_warmup_steps", "gradient_accumulation", "optimizer", "optimizer_params.betas",
		"optimizer_params.eps", "optimizer_params.weight_decay", "clip.scope", "clip.norm", "ema_config.ema_decay",
		"network.type", "network.dtype", "network.init", "network.linear", "network.linear_alpha", "timestep_type", "content_or_style",
		"guidance", "validate_every", "max_nonfinite", "recompute", "dtype",
	} {
		require.True(t, got[path], "no fault for %s; have %v", path, got)
	}
}

func TestConstantHasNoWarmup(t *testing.T) {
	c := Default()
	c.LRWarmupSteps = 10
	require.ErrorContains(t, c.Validate(), optim.ConstantWithWarmup)
	c.LRScheduler = optim.ConstantWithWarmup
	require.NoError(t, c.Validate())
}

func TestOneTrainStage(t *testing.T) {
	reg, err := pipeline.NewRegistry(Factory())
	require.NoError(t, err)
	_, err = reg.Parse([]byte("stages:\n  - train\n  - train: {id: b}\n"), pipeline.Options{File: "p.yaml"})
	require.EqualError(t, err, "p.yaml:3:5: stage b: stage train trains already, and a run makes one adapter: give this one a pipeline of its own")
}

func TestNothingIsBoundless(t *testing.T) {
	c := Default()
	c.Steps, c.Network.Rank = maxSteps, maxRank
	require.NoError(t, c.Validate())
	c.Steps++
	require.ErrorContains(t, c.Validate(), "steps: 1000000000 is above 999999999")
	c.Steps, c.Network.Rank = 1, maxRank+1
	require.ErrorContains(t, c.Validate(), "network.rank: 6145 is above 6144")
}
