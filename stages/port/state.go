package port

import (
	"context"
	"fmt"

	"longship/gpu/tensor"
)

// State is what train lends at a step boundary: the adapter and all that the
// next step depends on beside the frozen base. The borrower reads it and gives
// it back; it keeps no tensor of it. It is a handle.
//
// Randomness is counter-based, keyed by (seed, purpose, step, …), so the step is
// the only position there is: no generator has a state to save.
type State struct {
	Step    int     // completed optimiser steps
	Adapter Adapter // what the parameters are
	Params  []Param // in a fixed order: as train lists its targets, A before B

	// Counters are the whole numbers that go on in a resumed run: optimiser
	// steps that were taken, steps skipped as non-finite, micro-batches.
	Counters map[string]int64
	// Settings are the run's settings, as they are compared at a resume.
	Settings []Setting
	// Dataset lists the training samples, as Source.Dataset does.
	Dataset []string

	// Memory reads and writes the tensors; nil where the host addresses all of them.
	Memory Memory
}

// Adapter says what kind of adapter the parameters are.
type Adapter struct {
	Type    string   `json:"type"`    // "lora"
	Rank    int      `json:"rank"`    // r: A is [r, in], B is [out, r]
	Alpha   float64  `json:"alpha"`   // y = W·x + (alpha/rank)·B·A·x
	Targets []string `json:"targets"` // as configured: globs, or nothing for all
	Arch    string   `json:"arch"`    // flux2, flux2_klein_4b, flux2_klein_9b
	Base    string   `json:"base"`    // identity of the base weights (WeightSet.Source)
}

// Scale is the factor of B·A.
func (a Adapter) Scale() float64 { return a.Alpha / float64(a.Rank) }

// Param is one trained tensor with its shadow and its optimiser's state.
type Param struct {
	Module string // canonical (BFL) name of the Linear: "double_blocks.0.img_attn.qkv"
	Part   string // "lora_A" [rank, in] or "lora_B" [rows, rank]
	Rows   Rows   // the rows of the base weight that the pair acts on
	Split  []Rows // all rows of the base weight, by their names in the diffusers layout

	Value     tensor.Tensor            // f32 or bf16
	EMA       tensor.Tensor            // f32, the shape of Value; the zero Tensor without EMA
	Optimizer map[string]tensor.Tensor // "m", "v", "m_absmax", …; any type
}

// Rows is a range [Lo, Hi) of the rows of a weight, with the name that it has
// elsewhere: "transformer_blocks.0.attn.to_q".
type Rows struct {
	Name   string
	Lo, Hi int
}

// Name identifies the tensor in a state: the module, its rows where they are
// not all, and the part.
func (p Param) Name() string {
	if p.Rows.Lo == 0 && p.Rows.Hi == p.Out() {
		return p.Module + "." + p.Part
	}
	return fmt.Sprintf("%s[%d:%d].%s", p.Module, p.Rows.Lo, p.Rows.Hi, p.Part)
}

// Out returns the rows of the base weight.
func (p Param) Out() int { return p.Split[len(p.Split)-1].Hi }

// Memory moves whole contiguous tensors between the device and host bytes,
// after all work queued on them.
type Memory interface {
	Read(ctx context.Context, t tensor.Tensor, dst []byte) error
	Write(ctx context.Context, t tensor.Tensor, src []byte) error
}

// Setting is one setting of a run as the state remembers it.
type Setting struct {
	Name  string `json:"name"`  // its YAML place: "train.lr"
	Value string `json:"value"` // canonical text
	Fixed bool   `json:"fixed"` // it may not change between the runs that make one result
}
