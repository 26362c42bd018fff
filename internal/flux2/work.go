package flux2

import "strings"

// Work is what one block of a training step computes and holds. A multiply-add
// counts as two operations.
type Work struct {
	Forward   float64 // operations of one forward pass
	Attention float64 // those of them that are attention's, and of Recompute too unless it is kept
	Recompute float64 // operations of the forward pass again, up to what the backward pass needs
	Backward  float64 // operations of the backward pass, activations at hand
	Weights   int64   // frozen parameters, read once a pass
	Input     int64   // elements of the saved input, and of a saved attention's output
}

// Work returns the work of every block for a batch of shape s. adapter gives
// the trained parameters of a module by canonical name, 0 where it has none.
//
//	Linear     forward 2·t·P, backward 2·t·P (the input's gradient alone: the base is frozen)
//	adapter    forward 2·t·p, backward 4·t·p
//	attention  forward 4·B·S²·D (scores, output), backward 10·B·S²·D (scores again and four gradients)
//
// A recompute needs no output of a block's last Linears, and of their adapters
// only the lower half. This is for t tokens, P parameters of the Linear and p of its adapter.
func (c Config) Work(s Shape, adapter func(module string) int64) []Work {
	image, refs := s.Tokens()
	seq, d := s.Sequence(), c.Width()
	work := make([]Work, c.Blocks())
	for i := range work {
		scores := float64(s.B) * float64(seq) * float64(seq) * float64(d)
		work[i] = Work{Forward: 4 * scores, Attention: 4 * scores, Recompute: 4 * scores, Backward: 10 * scores, Input: int64(s.B) * int64(seq) * int64(d)}
	}
	for _, u := range c.Units() {
		work[u.Block].Weights += u.Params()
	}
	for _, m := range c.Modules() {
		tokens := seq
		switch m.Stream {
		case "img":
			tokens = image + refs
		case "txt":
			tokens = s.L
		}
		t := float64(s.B) * float64(tokens)
		base, trained := float64(m.Out)*float64(m.In), float64(adapter(m.Name))
		w := &work[m.Block]
		w.Forward += 2*t*base + 2*t*trained
		w.Backward += 2*t*base + 4*t*trained
		if last(m.Name) {
			w.Recompute += 2 * t * trained * float64(m.In) / float64(m.In+m.Out)
		} else {
			w.Recompute += 2*t*base + 2*t*trained
		}
	}
	return work
}

// last says whether a module's output is its block's output.
func last(module string) bool {
	return strings.HasSuffix(module, "_mlp.2") || strings.HasSuffix(module, ".linear2")
}
