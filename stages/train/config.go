package train

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/flow"
	"longship/internal/optim"
	"longship/pipeline"
)

// Config is what the user writes. Keys that ai-toolkit has keep its names.
type Config struct {
	Steps                int     `yaml:"steps" doc:"optimiser steps of the run"`
	LR                   float64 `yaml:"lr" doc:"learning rate"`
	LRScheduler          string  `yaml:"lr_scheduler" jsonschema:"enum=constant,enum=constant_with_warmup,enum=linear,enum=cosine" doc:"linear and cosine fall to zero at the last step"`
	LRWarmupSteps        int     `yaml:"lr_warmup_steps" doc:"steps in which the learning rate rises from zero; not for constant"`
	GradientAccumulation int     `yaml:"gradient_accumulation" doc:"micro-batches whose gradients are averaged in a step"`

	Optimizer       string          `yaml:"optimizer" jsonschema:"enum=adamw,enum=adamw8bit" doc:"adamw8bit keeps the moments of tensors of 4096 elements and more in 8 bits"`
	OptimizerParams OptimizerParams `yaml:"optimizer_params"`
	Clip            Clip            `yaml:"clip"`
	MaxGradNorm     float64         `yaml:"max_grad_norm" doc:"ai-toolkit's name of clip.norm; 0 leaves clip.norm as it is"`
	EMA             EMA             `yaml:"ema_config"`

	Network Network `yaml:"network"`

	TimestepType      string  `yaml:"timestep_type" jsonschema:"enum=linear,enum=sigmoid,enum=weighted,enum=shift,enum=none,enum=logit_normal,enum=mode,enum=cosmap,enum=sigma_sqrt" doc:"how noise levels are drawn and weighted: ai-toolkit's linear, sigmoid, weighted, shift, or a weighting scheme of the diffusers scripts"`
	ContentOrStyle    string  `yaml:"content_or_style" jsonschema:"enum=balanced,enum=content,enum=style" doc:"content favours high noise, style low noise"`
	MinDenoisingSteps int     `yaml:"min_denoising_steps" doc:"least timestep index; 0 is pure noise"`
	MaxDenoisingSteps int     `yaml:"max_denoising_steps" doc:"greatest timestep index"`
	LogitMean         float64 `yaml:"logit_mean" doc:"of timestep_type logit_normal"`
	LogitStd          float64 `yaml:"logit_std" doc:"of timestep_type logit_normal"`
	ModeScale         float64 `yaml:"mode_scale" doc:"of timestep_type mode"`
	Guidance          float64 `yaml:"guidance" doc:"embedded guidance that a model with a guidance embedder is trained at"`

	ValidateEvery int    `yaml:"validate_every" doc:"steps between two validation losses; 0 measures the first and last step only"`
	MaxNonFinite  int    `yaml:"max_nonfinite" doc:"steps in a row with a loss that is not finite after which the run stops"`
	Recompute     string `yaml:"recompute" jsonschema:"enum=auto,enum=block,enum=linear,enum=none" doc:"block keeps the input of each block and computes the block again for its gradients, linear keeps its attention too, none keeps all activations; auto keeps the most that fits beside all weights"`
	DType         string `yaml:"dtype" jsonschema:"enum=auto,enum=fp32,enum=bf16" doc:"type of activations; auto is fp32 on the CPU and bf16 on CUDA"`
}

// OptimizerParams are AdamW's constants.
type OptimizerParams struct {
	Betas       []float64 `yaml:"betas,flow" doc:"decay of the first and second moment"`
	Eps         float64   `yaml:"eps" doc:"added to the root of the second moment"`
	WeightDecay float64   `yaml:"weight_decay" doc:"decoupled weight decay"`
}

// Clip says how gradients are clipped.
type Clip struct {
	Norm  float64 `yaml:"norm" doc:"greatest L2 norm of the gradients"`
	Scope string  `yaml:"scope" jsonschema:"enum=global,enum=block,enum=none" doc:"what the norm is taken over; block and none update each block inside the backward pass"`
}

// EMA says whether a smoothed copy of the adapter is kept and saved.
type EMA struct {
	Use   bool    `yaml:"use_ema" doc:"save and validate an exponential moving average of the adapter"`
	Decay float64 `yaml:"ema_decay" doc:"share of the average that a step keeps"`
}

// Network is the adapter to train.
type Network struct {
	Type        string   `yaml:"type" jsonschema:"enum=lora" doc:"kind of adapter"`
	Rank        int      `yaml:"rank" doc:"inner width of the adapter"`
	Alpha       float64  `yaml:"alpha" doc:"the adapter's output is scaled by alpha/rank; 0 is alpha = rank"`
	Linear      int      `yaml:"linear" doc:"ai-toolkit's name of rank; 0 leaves rank as it is"`
	LinearAlpha float64  `yaml:"linear_alpha" doc:"ai-toolkit's name of alpha; 0 leaves alpha as it is"`
	Targets     []string `yaml:"targets,flow" doc:"globs of module names, fused (double_blocks.0.img_attn.qkv) or diffusers' (to_q); empty takes every Linear inside the blocks"`
	Exclude     []string `yaml:"exclude,flow" doc:"globs of modules to leave out"`
	DType       string   `yaml:"dtype" jsonschema:"enum=auto,enum=float32,enum=bfloat16" doc:"type of the adapter's values and gradients; bfloat16 takes half the memory and is rounded stochastically; auto is float32 below rank 128 and bfloat16 from there"`
	Init        string   `yaml:"init" jsonschema:"enum=kaiming,enum=gaussian" doc:"of A: kaiming is uniform within 1/sqrt(in), gaussian is N(0, 1/rank²); B is zero"`
}

// Default returns the config with every default.
func Default() *Config {
	return &Config{
		Steps: 1000, LR: 1e-4, LRScheduler: optim.Constant, GradientAccumulation: 1,
		Optimizer:       optim.AdamW,
		OptimizerParams: OptimizerParams{Betas: []float64{0.9, 0.999}, Eps: 1e-8, WeightDecay: 0.01},
		Clip:            Clip{Norm: 1, Scope: scopeGlobal},
		EMA:             EMA{Decay: 0.999},
		Network:         Network{Type: "lora", Rank: 16, Targets: []string{}, Exclude: []string{}, DType: dtypeAuto, Init: adapter.Kaiming},
		TimestepType:    flow.Weighted, ContentOrStyle: flow.Balanced, MaxDenoisingSteps: flow.Steps - 1,
		LogitStd: 1, ModeScale: 1.29, Guidance: 1,
		ValidateEvery: 100, MaxNonFinite: 10, Recompute: recomputeAuto, DType: "auto",
	}
}

const (
	scopeGlobal = "global"
	scopeBlock  = "block"
	scopeNone   = "none"

	dtypeAuto     = "auto"
	dtypeFloat32  = "float32"
	dtypeBFloat16 = "bfloat16"

	recomputeAuto   = "auto"
	recomputeBlock  = "block"
	recomputeLinear = "linear"
	recomputeNone   = "none"
)

func (c *Config) clipNorm() float64 { return firstSet(c.MaxGradNorm, c.Clip.Norm) }

func (n *Network) rank() int { return firstSet(n.Linear, n.Rank) }

func (n *Network) alpha() float64 { return firstSet(n.LinearAlpha, n.Alpha, float64(n.rank())) }

// wideRank is the rank from which on the adapter is bfloat16.
const wideRank = 128

func (n *Network) dtype() tensor.DType {
	if n.dtypeName() == dtypeBFloat16 {
		return tensor.BF16
	}
	return tensor.F32
}

func (n *Network) dtypeName() string {
	switch {
	case n.DType != dtypeAuto:
		return n.DType
	case n.rank() >= wideRank:
		return dtypeBFloat16
	}
	return dtypeFloat32
}

func firstSet[T int | float64](vs ...T) T {
	for _, v := range vs {
		if v != 0 {
			return v
		}
	}
	return 0
}

func (c *Config) timesteps() flow.Timesteps {
	return flow.Timesteps{
		Type: c.TimestepType, ContentOrStyle: c.ContentOrStyle, Min: c.MinDenoisingSteps, Max: c.MaxDenoisingSteps,
		LogitMean: c.LogitMean, LogitStd: c.LogitStd, ModeScale: c.ModeScale,
	}
}

func (c *Config) schedule() optim.Schedule {
	return optim.Schedule{Name: c.LRScheduler, Base: c.LR, Warmup: c.LRWarmupSteps, Total: c.Steps}
}

const (
	maxSteps = 999_999_999 // what the nine digits of a checkpoint's name can say
	maxRank  = 6144        // the hidden width of FLUX.2-dev
)

// Validate returns every fault.
func (c *Config) Validate() error {
	var errs []error
	fault := func(path, format string, args ...any) {
		errs = append(errs, &pipeline.FieldError{Path: path, Msg: fmt.Sprintf(format, args...)})
	}
	atLeast := func(path string, v, least int) {
		if v < least {
			fault(path, "%d is below %d", v, least)
		}
	}
	between := func(path string, v, lo, hi float64) {
		if !(v >= lo && v <= hi) {
			fault(path, "%v is not between %v and %v", v, lo, hi)
		}
	}
	oneOf := func(path, v string, known ...string) {
		if !slices.Contains(known, v) {
			fault(path, "%q is none of %s", v, strings.Join(known, ", "))
		}
	}
	atLeast("steps", c.Steps, 1)
	if c.Steps > maxSteps {
		fault("steps", "%d is above %d", c.Steps, maxSteps)
	}
	between("lr", c.LR, 0, 10)
	oneOf("lr_scheduler", c.LRScheduler, optim.Schedules...)
	atLeast("lr_warmup_steps", c.LRWarmupSteps, 0)
	if c.LRScheduler == optim.Constant && c.LRWarmupSteps > 0 {
		fault("lr_warmup_steps", "the schedule constant has no warm-up; use lr_scheduler: %s", optim.ConstantWithWarmup)
	}
	atLeast("gradient_accumulation", c.GradientAccumulation, 1)
	oneOf("optimizer", c.Optimizer, optim.AdamW, optim.AdamW8bit)
	if len(c.OptimizerParams.Betas) != 2 {
		fault("optimizer_params.betas", "%d numbers, not 2", len(c.OptimizerParams.Betas))
	}
	for _, b := range c.OptimizerParams.Betas {
		if !(b >= 0 && b < 1) {
			fault("optimizer_params.betas", "%v is not at least 0 and below 1", b)
		}
	}
	if !(c.OptimizerParams.Eps > 0 && c.OptimizerParams.Eps < 1) {
		fault("optimizer_params.eps", "%v is not between 0 and 1", c.OptimizerParams.Eps)
	}
	between("optimizer_params.weight_decay", c.OptimizerParams.WeightDecay, 0, 1)
	oneOf("clip.scope", c.Clip.Scope, scopeGlobal, scopeBlock, scopeNone)
	if !(c.clipNorm() > 0) {
		fault("clip.norm", "%v is not positive; scope: none clips nothing", c.clipNorm())
	}
	between("ema_config.ema_decay", c.EMA.Decay, 0, 1)
	errs = append(errs, c.Network.faults()...)
	faults := c.timesteps().Faults()
	for _, key := range slices.Sorted(maps.Keys(faults)) {
		fault(key, "%s", faults[key])
	}
	between("guidance", c.Guidance, 0, 100)
	atLeast("validate_every", c.ValidateEvery, 0)
	atLeast("max_nonfinite", c.MaxNonFinite, 1)
	oneOf("recompute", c.Recompute, recomputeAuto, recomputeBlock, recomputeLinear, recomputeNone)
	oneOf("dtype", c.DType, "auto", "fp32", "bf16")
	return errors.Join(errs...)
}

func (n *Network) faults() []error {
	var errs []error
	fault := func(path, format string, args ...any) {
		errs = append(errs, &pipeline.FieldError{Path: "network." + path, Msg: fmt.Sprintf(format, args...)})
	}
	if n.Type != "lora" {
		fault("type", "%q is not known; there is lora", n.Type)
	}
	if n.rank() < 1 {
		fault("rank", "%d is below 1", n.rank())
	}
	if n.rank() > maxRank {
		fault("rank", "%d is above %d, the full rank of FLUX.2's widest matrices", n.rank(), maxRank)
	}
	if !(n.alpha() > 0) {
		fault("alpha", "%v is not positive", n.alpha())
	}
	if dtypes := []string{dtypeAuto, dtypeFloat32, dtypeBFloat16}; !slices.Contains(dtypes, n.DType) {
		fault("dtype", "%q is none of %s", n.DType, strings.Join(dtypes, ", "))
	}
	if n.Init != adapter.Kaiming && n.Init != adapter.Gaussian {
		fault("init", "%q is neither %s nor %s", n.Init, adapter.Kaiming, adapter.Gaussian)
	}
	usual := Default().Network
	if n.Linear != 0 && n.Rank != n.Linear && n.Rank != usual.Rank {
		fault("linear", "it is %d and rank is %d; they are two names of one thing", n.Linear, n.Rank)
	}
	if n.LinearAlpha != 0 && n.Alpha != n.LinearAlpha && n.Alpha != usual.Alpha {
		fault("linear_alpha", "it is %v and alpha is %v; they are two names of one thing", n.LinearAlpha, n.Alpha)
	}
	return errs
}
