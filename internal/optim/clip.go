package optim

import (
	"fmt"
	"math"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/adapter"
)

// Clip limits the L2 norm of gradients, of all together or of each block alone:
// they count min(1, max/(norm + 1e-6)). A norm that is not finite raises the
// step's flag.
type Clip struct {
	max    float64
	blocks []adapter.Block
	each   bool // a norm for each block
	buf    gpu.Buffer
	sums   tensor.Tensor // f64 [norms]
	norms  tensor.Tensor // f32 [norms]
	coefs  tensor.Tensor // f32 [norms]
}

// NewClip takes memory for the norms of the blocks' gradients: one for each
// block where each is set, else one for all. A limit of 0 measures and does not
// limit.
func NewClip(dev gpu.Device, limit float64, each bool, blocks []adapter.Block) (*Clip, error) {
	if limit == 0 {
		limit = math.Inf(1)
	}
	c := &Clip{max: limit, blocks: blocks, each: each}
	n := 1
	if each {
		n = len(blocks)
	}
	var err error
	if c.buf, err = dev.Alloc(int64(n) * 16); err != nil {
		return nil, fmt.Errorf("norms of gradients: %w", err)
	}
	c.sums = tensor.New(c.buf, 0, tensor.F64, n)
	c.norms = tensor.New(c.buf, int64(n)*8, tensor.F32, n)
	c.coefs = tensor.New(c.buf, int64(n)*12, tensor.F32, n)
	return c, nil
}

// Reset queues the start of a step.
func (c *Clip) Reset(x *ops.Ctx) { x.Run(ops.Zero{Y: c.sums}, ops.Zero{Y: c.norms}) }

// Measure queues that a block's gradients count in their norm.
func (c *Clip) Measure(x *ops.Ctx, block int) {
	if len(c.blocks[block].Params) > 0 {
		x.Run(ops.SumSquares{Sum: at(c.sums, c.norm(block)), X: c.blocks[block].Grads})
	}
}

// Limit queues the end of a block's norm, after the last Measure that counts in
// it, and returns the factor of the block's gradients, f32 [1].
func (c *Clip) Limit(x *ops.Ctx, block int, flag tensor.Tensor) tensor.Tensor {
	i := c.norm(block)
	coef := at(c.coefs, i)
	x.Run(ops.ClipNorm{Coef: coef, Norm: at(c.norms, i), Sum: at(c.sums, i), Max: c.max, Flag: flag})
	return coef
}

func (c *Clip) norm(block int) int {
	if c.each {
		return block
	}
	return 0
}

// Norms returns the norms of the step, f32; see Total.
func (c *Clip) Norms() tensor.Tensor { return c.norms }

// Total returns the norm of all gradients from the values of Norms.
func Total(norms []float32) float64 {
	sum := 0.0
	for _, n := range norms {
		sum += float64(n) * float64(n)
	}
	return math.Sqrt(sum)
}

// Close frees the memory. Calling it twice is allowed.
func (c *Clip) Close() error { return c.buf.Free() }

// at returns element i of a vector, as a vector of one.
func at(t tensor.Tensor, i int) tensor.Tensor {
	return tensor.New(t.Buf, t.Off+int64(i*t.DType.Size()), t.DType, 1)
}
