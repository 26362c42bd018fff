package optim

import (
	"fmt"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/adapter"
)

// EMA is an exponential moving average of an adapter's parameters, by
// ai-toolkit's rule: shadow ← shadow − (1−decay)·(shadow − p) after each update.
type EMA struct {
	decay  float64
	buf    gpu.Buffer
	blocks []shadow
	params map[string]tensor.Tensor
}

// shadow is the average of one block, float32, laid out like its values.
type shadow struct{ values, average tensor.Tensor }

// NewEMA takes memory for the averages of the blocks' parameters. Start sets them.
func NewEMA(dev gpu.Device, decay float64, blocks []adapter.Block) (*EMA, error) {
	var size int64
	for _, b := range blocks {
		size += 4 * int64(b.Values.Len())
	}
	buf, err := dev.Alloc(size)
	if err != nil {
		return nil, fmt.Errorf("moving average: %w", err)
	}
	e := &EMA{decay: decay, buf: buf, blocks: make([]shadow, len(blocks)), params: map[string]tensor.Tensor{}}
	var off int64
	for i, b := range blocks {
		if len(b.Params) == 0 {
			continue
		}
		e.blocks[i] = shadow{values: b.Values, average: tensor.New(buf, off, tensor.F32, b.Values.Len())}
		for _, p := range b.Params {
			e.params[p.Name()] = tensor.New(buf, off+4*elementOf(b, p), tensor.F32, p.Value.Shape...)
		}
		off += 4 * int64(b.Values.Len())
	}
	return e, nil
}

// Start queues that the averages are what the parameters are.
func (e *EMA) Start(st gpu.Stream) {
	for _, s := range e.blocks {
		if s.values.Valid() {
			st.Launch(ops.Cast{Y: s.average, X: s.values})
		}
	}
}

// Update queues that a block's averages follow its parameters, unless flag is raised.
func (e *EMA) Update(c *ops.Ctx, block int, flag tensor.Tensor) {
	if s := e.blocks[block]; s.values.Valid() {
		c.Run(ops.EMA{Shadow: s.average, P: s.values, Decay: e.decay, Flag: flag})
	}
}

// Block returns the average of a block's values, float32, laid out like them; the
// zero Tensor for a block without parameters.
func (e *EMA) Block(block int) tensor.Tensor { return e.blocks[block].average }

// Average returns the average of a parameter.
func (e *EMA) Average(param string) tensor.Tensor { return e.params[param] }

// Close frees the memory. Calling it twice is allowed.
func (e *EMA) Close() error { return e.buf.Free() }
