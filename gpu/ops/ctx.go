// Package ops has the operations that models are made of. One file is one op
// (or one family): its formula and source, its shapes, what the forward saves
// for the backward, whether it assigns or adds, and its reference on the host.
//
// An op is a struct whose fields are its arguments; it implements gpu.Kernel.
// Host form here; the CUDA launchers are in gpu/cuda, found by Name.
//
// Rule: gradients of parameters are added to (+=), activations and gradients
// of activations are assigned (=) unless the field's comment says otherwise.
package ops

import (
	"longship/gpu"
	"longship/gpu/tensor"
)

// Ctx is what model code needs to queue ops: the compute stream, the arena its
// temporaries come from, and the activations' type (F32 on the CPU, BF16 on CUDA).
type Ctx struct {
	Stream gpu.Stream
	Arena  *tensor.Arena
	Act    tensor.DType
}

// New takes an activation from the arena.
func (c *Ctx) New(shape ...int) tensor.Tensor { return c.Arena.New(c.Act, shape...) }

// NewF32 takes a float32 tensor from the arena (statistics, losses, embeddings of time).
func (c *Ctx) NewF32(shape ...int) tensor.Tensor { return c.Arena.New(tensor.F32, shape...) }

// Scope marks the arena; calling the result releases what was taken since:
//
//	defer c.Scope()()
func (c *Ctx) Scope() func() {
	m := c.Arena.Mark()
	return func() { c.Arena.Release(m) }
}

// Run queues ops on the compute stream.
func (c *Ctx) Run(ks ...gpu.Kernel) {
	for _, k := range ks {
		c.Stream.Launch(k)
	}
}
