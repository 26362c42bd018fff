package flux2

import (
	"fmt"
	"slices"

	"longship/gpu/memory"
	"longship/gpu/tensor"
	"longship/internal/nn"
)

// linear is a Linear of the model by its place: what the adapter made of it, and
// the frozen weight below, which is set whenever the block's weights arrive.
type linear struct {
	nn.Linear
	name    string // of the module: its weight is name + ".weight"
	out, in int
	dense   *nn.Dense
}

func newLinear(ad nn.Adapter, name string, out, in int) linear {
	d := &nn.Dense{}
	return linear{Linear: ad.Wrap(name, d), name: name, out: out, in: in, dense: d}
}

func (l *linear) bind(p memory.Params) (err error) {
	l.dense.Weight, err = weight(p, l.name+".weight", l.out, l.in)
	return err
}

// weight returns a weight, which must be there in the right shape.
func weight(p memory.Params, name string, shape ...int) (tensor.Weight, error) {
	w, ok := p[name]
	switch {
	case !ok:
		return w, fmt.Errorf("flux2: weight %s is missing", name)
	case !slices.Equal(w.Data.Shape, shape):
		return w, fmt.Errorf("flux2: weight %s has shape %v, the config says %v", name, w.Data.Shape, shape)
	}
	return w, nil
}
