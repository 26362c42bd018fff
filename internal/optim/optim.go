// Package optim updates an adapter from its gradients: AdamW with float32 or
// 8-bit moments, clipping, a moving average, learning-rate schedules.
//
// All state lies in device memory and all work is queued on the compute stream,
// a block of the model at a time, so that a block can be updated inside the
// backward pass. Every kernel reads the step's flag and does nothing once it is
// raised (see gpu/ops.FlowLoss). Moments and averages are float32, or 8 bits,
// whatever the type of the parameters. Types here belong to the goroutine that queues;
// Close frees their memory.
package optim

import (
	"fmt"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/rng"
)

// The optimisers.
const (
	AdamW     = "adamw"
	AdamW8bit = "adamw8bit"
)

// smallest is the number of elements from which on AdamW8bit keeps a tensor's
// moments in 8 bits, as bitsandbytes does.
const smallest = 4096

// Config says which optimiser, and its constants.
type Config struct {
	Name         string // AdamW or AdamW8bit
	Beta1, Beta2 float64
	Eps          float64
	WeightDecay  float64 // decoupled
	Seed         uint64  // of stochastic rounding
}

// Step is one update of a run.
type Step struct {
	N  int     // its number in the run: stochastic rounding has other bits in each
	LR float64 // learning rate
}

// Optimizer holds the moments of an adapter's parameters.
type Optimizer struct {
	cfg    Config
	buf    gpu.Buffer
	step   tensor.Tensor // i32 [1]: updates taken
	blocks [][]moments
	states map[string]map[string]tensor.Tensor // by parameter, by name
}

// moments are the state of one or several neighbouring parameters.
type moments struct {
	p, g       tensor.Tensor
	m, v       tensor.Tensor // f32, or codes u8
	mMax, vMax tensor.Tensor // f32, of codes; the zero Tensor for f32 moments
}

// New takes memory for the moments of the blocks' parameters and zeroes it on st.
func New(dev gpu.Device, st gpu.Stream, cfg Config, blocks []adapter.Block) (*Optimizer, error) {
	o := &Optimizer{cfg: cfg}
	size := o.lay(nil, blocks)
	var err error
	if o.buf, err = dev.Alloc(size); err != nil {
		return nil, fmt.Errorf("optimiser state: %w", err)
	}
	o.lay(o.buf, blocks)
	st.Launch(ops.Zero{Y: tensor.New(o.buf, 0, tensor.U8, int(size))})
	return o, nil
}

// lay places all state in buf and returns the bytes it takes. Float32 moments
// are laid out like the values of a block, so that one kernel updates it whole;
// 8-bit ones tensor by tensor, since each has blocks of its own.
func (o *Optimizer) lay(buf gpu.Buffer, blocks []adapter.Block) int64 {
	o.blocks = make([][]moments, len(blocks))
	o.states = map[string]map[string]tensor.Tensor{}
	var off int64
	take := func(dt tensor.DType, shape ...int) tensor.Tensor {
		t := tensor.New(buf, off, dt, shape...)
		off += (t.Bytes() + tensor.Align - 1) / tensor.Align * tensor.Align
		return t
	}
	o.step = take(tensor.I32, 1)
	for i, b := range blocks {
		if len(b.Params) == 0 {
			continue
		}
		if o.cfg.Name == AdamW {
			s := moments{p: b.Values, g: b.Grads, m: take(tensor.F32, b.Values.Len()), v: take(tensor.F32, b.Values.Len())}
			o.blocks[i] = []moments{s}
			for _, p := range b.Params {
				at := 4 * elementOf(b, p)
				o.states[p.Name()] = map[string]tensor.Tensor{
					"m": tensor.New(buf, s.m.Off+at, tensor.F32, p.Value.Shape...),
					"v": tensor.New(buf, s.v.Off+at, tensor.F32, p.Value.Shape...),
				}
			}
			continue
		}
		for _, p := range b.Params {
			s := moments{p: p.Value, g: p.Grad}
			if n := p.Value.Len(); n < smallest {
				s.m, s.v = take(tensor.F32, p.Value.Shape...), take(tensor.F32, p.Value.Shape...)
				o.states[p.Name()] = map[string]tensor.Tensor{"m": s.m, "v": s.v}
			} else {
				s.m, s.v = take(tensor.U8, p.Value.Shape...), take(tensor.U8, p.Value.Shape...)
				s.mMax, s.vMax = take(tensor.F32, ops.Adam8Blocks(n)), take(tensor.F32, ops.Adam8Blocks(n))
				o.states[p.Name()] = map[string]tensor.Tensor{"m_code": s.m, "v_code": s.v, "m_absmax": s.mMax, "v_absmax": s.vMax}
			}
			o.blocks[i] = append(o.blocks[i], s)
		}
	}
	return off
}

// Count queues the start of an update: it has a number of its own unless flag is
// raised. Updates of blocks follow.
func (o *Optimizer) Count(c *ops.Ctx, flag tensor.Tensor) {
	c.Run(ops.CountStep{Step: o.step, Flag: flag})
}

// elementOf returns the place of a parameter among the elements of its block.
func elementOf(b adapter.Block, p adapter.Param) int64 {
	return (p.Value.Off - b.Values.Off) / int64(p.Value.DType.Size())
}

// Update queues the update of one block's parameters. Gradients count coef times
// as much. Parameters of bfloat16 are rounded stochastically, so that updates
// smaller than the distance of two neighbours are not lost.
func (o *Optimizer) Update(c *ops.Ctx, block int, s Step, coef, flag tensor.Tensor) {
	a := ops.AdamParams{
		LR: s.LR, Beta1: o.cfg.Beta1, Beta2: o.cfg.Beta2, Eps: o.cfg.Eps, WeightDecay: o.cfg.WeightDecay,
		Step: o.step, Clip: coef, Flag: flag,
	}
	for i, m := range o.blocks[block] {
		round := rng.New(o.cfg.Seed, "optim/round", s.N, block, i)
		if m.mMax.Valid() {
			// Decay and signs as bitsandbytes' GPU kernel has them, on every device.
			c.Run(ops.AdamW8{P: m.p, G: m.g, MCode: m.m, VCode: m.v, MMax: m.mMax, VMax: m.vMax,
				Adam: a, DecayAfter: true, FixSign: true, Round: round})
		} else {
			c.Run(ops.AdamW{P: m.p, G: m.g, M: m.m, V: m.v, Adam: a, Round: round})
		}
	}
}

// Taken is the number of updates taken, i32 [1]. It is part of the state.
func (o *Optimizer) Taken() tensor.Tensor { return o.step }

// State returns the moments of a parameter: "m" and "v", or in 8 bits "m_code",
// "v_code", "m_absmax" and "v_absmax" (one for each 256 elements).
func (o *Optimizer) State(param string) map[string]tensor.Tensor { return o.states[param] }

// Close frees the state. Calling it twice is allowed.
func (o *Optimizer) Close() error { return o.buf.Free() }
