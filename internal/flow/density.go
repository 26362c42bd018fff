package flow

import (
	"fmt"
	"math"
)

// Density maps a raw draw to u of a diffusers weighting scheme: a normal
// N(mean, std) for LogitNormal, a uniform of [0, 1) for the others. Large u is
// little noise.
//
//	logit_normal  u = sigmoid(raw)
//	mode          u = 1 − r − s·(cos²(πr/2) − 1 + r), s the mode scale
//	others        u = raw
func Density(scheme string, raw, modeScale float64) float64 {
	switch scheme {
	case LogitNormal:
		return sigmoid(raw)
	case Mode:
		c := math.Cos(math.Pi * raw / 2)
		return 1 - raw - modeScale*(c*c-1+raw)
	case None, CosMap, SigmaSqrt:
		return raw
	}
	panic(fmt.Sprintf("flow: weighting scheme %q", scheme))
}

// DensityIndex returns the timestep index of u. The product is float32's, as it
// is in the scripts: just below a whole number it may round to that.
func DensityIndex(u float64) int { return min(max(int(float32(u)*Steps), 0), Steps-1) }

// DensityWeight returns the loss weight of a weighting scheme at σ.
//
//	sigma_sqrt  σ⁻²
//	cosmap      2 / (π·(1 − 2σ + 2σ²))
//	others      1
func DensityWeight(scheme string, sigma float64) float64 {
	switch scheme {
	case SigmaSqrt:
		return 1 / (sigma * sigma)
	case CosMap:
		return 2 / (math.Pi * (1 - 2*sigma + 2*sigma*sigma))
	}
	return 1
}
