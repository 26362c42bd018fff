package nn

// Module is a Linear of a model as adapters see it.
type Module struct {
	Name    string // canonical (BFL) name: "double_blocks.0.img_attn.qkv"
	Block   int    // the block it is in
	Stream  string // the tokens it works on where a block has several streams: "img", "txt"
	Out, In int    // shape of its weight
	Parts   []Part // its rows by the names of the diffusers layout, covering [0, Out)
}

// Part is a range of rows of a Module that has a name of its own elsewhere.
type Part struct {
	Name   string // "transformer_blocks.0.attn.to_q"
	Lo, Hi int
}

// Adapter changes what the Linears of a model compute. A model asks it once
// per Linear, when it is built.
type Adapter interface {
	// Wrap returns the Linear to use in place of base, which is the module of
	// that name; base itself where nothing is changed.
	Wrap(module string, base Linear) Linear
	// Trains says whether the Linear of that name has gradients to compute.
	Trains(module string) bool
}

// Frozen is the Adapter that changes nothing.
type Frozen struct{}

// Wrap returns base.
func (Frozen) Wrap(_ string, base Linear) Linear { return base }

// Trains is false.
func (Frozen) Trains(string) bool { return false }
