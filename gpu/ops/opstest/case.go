// Package opstest holds one list of calls of every op and four ways to use it:
// parity with a naive evaluation in float64, gradients against finite
// differences of the naive forward, equal bits on any number of cores, and
// speed. A new op is a few lines here; a new device is tested by RunAll.
//
// Reference values are computed from the inputs as the op sees them, after
// rounding to the argument's type. Outputs lie in memory filled with NaN, so an
// element that is not written is found, and so is one written beside the output.
package opstest

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"longship/gpu"
	"longship/gpu/tensor"
)

// Case is one call.
type Case struct {
	Name string
	In   []Arg
	Out  []Arg
	// Op makes the kernel from the arguments' tensors.
	Op func(t Tensors) gpu.Kernel
	// Want returns the outputs by name, computed naively in float64. A case
	// without Want and Grad is there for its bits and its speed.
	Want func(v Values) Values
	// Grad says that the outputs are gradients; they are checked against finite differences.
	Grad *Grad
	// Tol bounds the error of a float32 output relative to the largest
	// magnitude of its reference; 0 takes 1e-5.
	Tol float64
	// TolBF16 is Tol for a bfloat16 output; 0 takes 1/256, the rounding of an exact
	// result. The reference is computed from the inputs as they are in bfloat16.
	TolBF16 float64
}

// Grad describes a backward op: its outputs are gradients of Σ DY·Forward.
type Grad struct {
	// Forward computes the output naively from the inputs.
	Forward func(v Values) []float64
	DY      string            // the input that holds the gradient of the output
	Of      map[string]string // output name -> the input it is the gradient of
}

// Arg is an argument: a tensor with its content.
type Arg struct {
	Name  string
	Shape []int
	// DType is the element type; the zero value is the activations' type, which
	// the device under test chooses.
	DType tensor.DType
	// Gap is the number of elements between the end of a row and the next.
	Gap int
	// Fill gives an element's value. An output without Fill holds NaN before
	// the call; one with Fill is added to.
	Fill Fill
	// From, in place of Fill, computes an input from those before it: what the
	// forward saved for a backward.
	From func(v Values) []float64
	// Over names an input whose memory the output shares.
	Over string
	// Scratch marks an output whose content nobody reads.
	Scratch bool
}

// Fill returns the value of element i.
type Fill func(r *rand.Rand, i int) float64

// Tensors are the arguments by name; a name without an argument gives the zero
// tensor, which stands for "none".
type Tensors map[string]tensor.Tensor

// Values are contents by argument name, in row-major order without gaps.
type Values map[string][]float64

// Normal fills with N(0, std²).
func Normal(std float64) Fill {
	return func(r *rand.Rand, _ int) float64 { return std * r.NormFloat64() }
}

// Uniform fills from [lo, hi).
func Uniform(lo, hi float64) Fill {
	return func(r *rand.Rand, _ int) float64 { return lo + (hi-lo)*r.Float64() }
}

// Ints fills with whole numbers from 0 to n-1.
func Ints(n int) Fill {
	return func(r *rand.Rand, _ int) float64 { return float64(r.IntN(n)) }
}

// List fills with the values in turn.
func List(v ...float64) Fill {
	return func(_ *rand.Rand, i int) float64 { return v[i%len(v)] }
}

// x is an activation of that shape, N(0,1).
func x(name string, shape ...int) Arg { return Arg{Name: name, Shape: shape, Fill: Normal(1)} }

// out is an activation to be written.
func out(name string, shape ...int) Arg { return Arg{Name: name, Shape: shape} }

// f32 is a float32 argument whatever the activations' type.
func f32(name string, fill Fill, shape ...int) Arg {
	return Arg{Name: name, Shape: shape, DType: tensor.F32, Fill: fill}
}

// saved is a float32 input computed from those before it.
func saved(name string, from func(v Values) []float64, shape ...int) Arg {
	return Arg{Name: name, Shape: shape, DType: tensor.F32, From: from}
}

// gap spreads the rows of an argument.
func (a Arg) gap(n int) Arg {
	a.Gap = n
	return a
}

// over puts an output on an input's memory.
func (a Arg) over(input string) Arg {
	a.Over, a.Fill = input, nil
	return a
}

// filled gives an argument another content.
func (a Arg) filled(f Fill) Arg {
	a.Fill = f
	return a
}

func (a Arg) cols() int {
	if len(a.Shape) == 0 {
		return 1
	}
	return a.Shape[len(a.Shape)-1]
}

func (a Arg) len() int {
	n := 1
	for _, d := range a.Shape {
		n *= d
	}
	return n
}

// source returns the random numbers of one argument of a case.
func (c Case) source(arg string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(c.Name + "\x00" + arg))
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}

// content returns the elements of an argument, nil where it holds NaN.
func (c Case) content(a Arg, before Values) []float64 {
	switch {
	case a.From != nil:
		return a.From(before)
	case a.Fill == nil:
		return nil
	}
	v := make([]float64, a.len())
	r := c.source(a.Name)
	for i := range v {
		v[i] = a.Fill(r, i)
	}
	return v
}

// inPlace is the case with an output on an input's memory.
func (c Case) inPlace(output, input string) Case {
	c.Name += " " + output + " over " + input
	c.Out = slices.Clone(c.Out)
	for i, a := range c.Out {
		if a.Name == output {
			c.Out[i] = a.over(input)
		}
	}
	return c
}

// Cases returns the whole list.
func Cases() []Case {
	var all []Case
	for _, part := range [][]Case{linearCases(), normCases(), pointwiseCases(), attentionCases(), imageCases(), trainCases(), optimCases()} {
		all = append(all, part...)
	}
	return all
}
