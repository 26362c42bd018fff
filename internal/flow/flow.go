// Package flow has the flow-matching side of training: which noise level a
// sample is trained at, and what its loss counts.
//
// A sample x₀ is mixed with noise ε to x_t = (1−σ)·x₀ + σ·ε; the network
// learns the velocity v = ε − x₀. σ = t/1000 comes from a table of 1000
// timesteps, index 0 the noisiest. Two families of rules choose it: those of
// ai-toolkit (an index rule, content_or_style, over a table, timestep_type) and
// the densities of the diffusers scripts (weighting_scheme), under one key.
//
// All functions are pure: a draw depends on its names alone (see internal/rng).
package flow

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"longship/internal/rng"
)

// Steps is the length of the timestep table.
const Steps = 1000

// The timestep types. The first four are ai-toolkit's, the others diffusers'.
const (
	Linear      = "linear"       // t_i = 1000 − i
	Sigmoid     = "sigmoid"      // 1000 logit-normal draws, sorted, drawn anew every step
	Weighted    = "weighted"     // linear, with the loss weighted by Weight
	Shift       = "shift"        // linear, shifted by the number of image tokens
	None        = "none"         // u uniform
	LogitNormal = "logit_normal" // u = sigmoid(N(logit_mean, logit_std))
	Mode        = "mode"         // see Density
	CosMap      = "cosmap"       // u uniform, loss weighted
	SigmaSqrt   = "sigma_sqrt"   // u uniform, loss weighted by σ⁻²
)

var tables = []string{Linear, Sigmoid, Weighted, Shift}
var densities = []string{None, LogitNormal, Mode, CosMap, SigmaSqrt}

// The index rules.
const (
	Balanced = "balanced" // every index alike
	Content  = "content"  // favours high noise
	Style    = "style"    // favours low noise
)

// Timesteps says how noise levels are drawn.
type Timesteps struct {
	Type           string  // one of the timestep types
	ContentOrStyle string  // one of the index rules; for ai-toolkit's types only
	Min, Max       int     // bounds of the index, min_ and max_denoising_steps
	LogitMean      float64 // of LogitNormal
	LogitStd       float64
	ModeScale      float64 // of Mode
}

// Faults returns what is wrong, by key as the user writes it.
func (ts Timesteps) Faults() map[string]string {
	faults := map[string]string{}
	if known := slices.Concat(tables, densities); !slices.Contains(known, ts.Type) {
		faults["timestep_type"] = fmt.Sprintf("%q is none of %s", ts.Type, strings.Join(known, ", "))
	}
	if rules := []string{Balanced, Content, Style}; !slices.Contains(rules, ts.ContentOrStyle) {
		faults["content_or_style"] = fmt.Sprintf("%q is none of %s", ts.ContentOrStyle, strings.Join(rules, ", "))
	}
	if ts.Min < 0 || ts.Min > Steps-1 {
		faults["min_denoising_steps"] = fmt.Sprintf("%d is outside 0..%d", ts.Min, Steps-1)
	}
	if ts.Max < ts.Min || ts.Max > Steps-1 {
		faults["max_denoising_steps"] = fmt.Sprintf("%d is outside %d..%d", ts.Max, ts.Min, Steps-1)
	}
	for key, v := range map[string]float64{"logit_mean": ts.LogitMean, "logit_std": ts.LogitStd, "mode_scale": ts.ModeScale} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			faults[key] = fmt.Sprintf("%v is no finite number", v)
		}
	}
	if ts.LogitStd <= 0 {
		faults["logit_std"] = fmt.Sprintf("%v is not positive", ts.LogitStd)
	}
	return faults
}

// Level is the noise level of one sample.
type Level struct {
	Index  int     // into the timestep table
	Sigma  float64 // 0..1; the network is given this
	Weight float64 // of the sample's squared error
}

// Draw returns the noise level of one sample. step and micro name the
// micro-batch, item is the sample's place in it and id its name; tokens is the
// number of target image tokens.
func (ts Timesteps) Draw(seed uint64, step, micro, item int, id string, tokens int) Level {
	g := rng.New(seed, "train/timestep", step, micro, item, id)
	if slices.Contains(densities, ts.Type) {
		raw := g.Float64(0)
		if ts.Type == LogitNormal {
			raw = ts.LogitMean + ts.LogitStd*g.Normal(0)
		}
		idx := DensityIndex(Density(ts.Type, raw, ts.ModeScale))
		sigma := linear(idx)
		return Level{Index: idx, Sigma: sigma, Weight: DensityWeight(ts.Type, sigma)}
	}
	idx := ts.Index(g.Float64(0))
	switch ts.Type {
	case Sigmoid:
		return Level{Index: idx, Sigma: sigmoidTable(seed, step)[idx], Weight: 1}
	case Shift:
		return Level{Index: idx, Sigma: TimeShift(TokenShift(tokens), linear(idx)), Weight: 1}
	case Weighted:
		return Level{Index: idx, Sigma: linear(idx), Weight: Weight(idx)}
	default:
		return Level{Index: idx, Sigma: linear(idx), Weight: 1}
	}
}

// Index returns the table index for u uniform in [0, 1), by the index rule.
// The balanced rule never takes Max itself, as in ai-toolkit.
func (ts Timesteps) Index(u float64) int {
	if ts.ContentOrStyle == Balanced {
		return min(ts.Min+int(u*float64(ts.Max-ts.Min)), max(ts.Min, ts.Max-1))
	}
	x := u * u * u
	if ts.ContentOrStyle == Style {
		x = 1 - x
	}
	i := float64(ts.Min) + x*Steps*float64(ts.Max-ts.Min)/(Steps-1)
	return min(max(int(i), ts.Min), ts.Max)
}

// linear is the table t_i = 1000 − i, as σ.
func linear(i int) float64 { return float64(Steps-i) / Steps }

// sigmoidTable is the table of one step: 1000 draws of 1 − sigmoid(N(0, 1)),
// noisiest first.
func sigmoidTable(seed uint64, step int) []float64 {
	g := rng.New(seed, "train/timestep-table", step)
	t := make([]float64, Steps)
	for i := range t {
		t[i] = 1 - sigmoid(g.Normal(uint64(i)))
	}
	slices.Sort(t)
	slices.Reverse(t)
	return t
}

// TokenShift returns μ, linear in the number of image tokens through
// (256, 0.5) and (4096, 1.15).
func TokenShift(tokens int) float64 {
	return 0.5 + (1.15-0.5)*float64(tokens-256)/(4096-256)
}

// TimeShift moves σ towards the noise: e^μ / (e^μ + (1/σ − 1)).
func TimeShift(mu, sigma float64) float64 {
	e := math.Exp(mu)
	return e / (e + (1/sigma - 1))
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
