package flux2

import "longship/gpu/tensor"

// Keep says what of its blocks a training pass keeps from the forward to the
// backward pass. It changes no bit of a result.
type Keep int

const (
	// KeepInput keeps every block's input; all else is computed again.
	KeepInput Keep = iota
	// KeepAttention also keeps the output of every block's attention, as large as
	// the input, and its log-sum-exps, 4·B·S·H bytes: attention, whose work grows
	// with the square of the tokens, is not computed again.
	KeepAttention
	// KeepAll keeps all activations; nothing is computed again.
	KeepAll
)

// kept is the memory of a block's attention where it outlives the block's
// forward pass; the zero value where it does not.
type kept struct {
	o    tensor.Tensor // [B·S, D]
	lse  tensor.Tensor // [B, H, S]
	done bool          // both have been computed
}

// newKept takes the memory of one block.
func newKept(p *pass) kept {
	rows := p.shape.B * p.shape.Sequence()
	return kept{o: p.c.New(rows, p.width), lse: p.c.NewF32(p.shape.B, p.heads, p.shape.Sequence())}
}

// again is k for a recompute.
func (k kept) again() kept {
	k.done = k.o.Valid()
	return k
}
