package optim

import (
	"fmt"
	"math"
	"strings"
)

// The learning-rate schedules, named and defined as in diffusers.
const (
	Constant           = "constant"
	ConstantWithWarmup = "constant_with_warmup"
	Linear             = "linear"
	Cosine             = "cosine"
)

// Schedules lists the names of all schedules.
var Schedules = []string{Constant, ConstantWithWarmup, Linear, Cosine}

// Schedule is a learning rate over a run.
type Schedule struct {
	Name   string
	Base   float64 // the learning rate that factors multiply
	Warmup int     // W: steps in which the rate rises from zero; Constant has none
	Total  int     // M: steps of the run
}

// LR returns the rate of the step that follows k completed steps.
//
//	constant              1
//	constant_with_warmup  min(1, k/W)
//	linear                k/W, then (M−k)/(M−W)
//	cosine                k/W, then ½(1 + cos(π·(k−W)/(M−W)))
func (s Schedule) LR(k int) float64 { return s.Base * s.factor(k) }

func (s Schedule) factor(k int) float64 {
	if s.Name == Constant {
		return 1
	}
	if k < s.Warmup {
		return float64(k) / float64(s.Warmup)
	}
	rest := float64(max(1, s.Total-s.Warmup))
	switch s.Name {
	case ConstantWithWarmup:
		return 1
	case Linear:
		return max(0, float64(s.Total-k)/rest)
	case Cosine:
		return max(0, (1+math.Cos(math.Pi*float64(k-s.Warmup)/rest))/2)
	}
	panic(fmt.Sprintf("optim: schedule %q is none of %s", s.Name, strings.Join(Schedules, ", ")))
}
