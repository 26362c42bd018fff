package ops

import (
	"fmt"

	"longship/gpu/tensor"
)

// check collects the first fault of an op's arguments. The zero value has none.
type check struct{ err error }

func (c *check) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// that demands ok.
func (c *check) that(ok bool, format string, args ...any) {
	if !ok {
		c.fail(format, args...)
	}
}

// matrix demands an activation of rows x cols (all dimensions but the last are
// rows): float32, or bfloat16 for devices that have it; the host form is float32
// alone. Rows may lie apart.
func (c *check) matrix(name string, t tensor.Tensor, rows, cols int) {
	if t.DType == tensor.BF16 {
		c.typed(name, t, tensor.BF16, rows, cols)
		return
	}
	c.typed(name, t, tensor.F32, rows, cols)
}

// optional is matrix for an argument that may be absent.
func (c *check) optional(name string, t tensor.Tensor, rows, cols int) {
	if t.Valid() {
		c.matrix(name, t, rows, cols)
	}
}

func (c *check) typed(name string, t tensor.Tensor, dt tensor.DType, rows, cols int) {
	switch {
	case !t.Valid():
		c.fail("%s is missing", name)
	case t.DType != dt:
		c.fail("%s is %s %v, want type %s", name, t.DType, t.Shape, dt)
	case t.Rows() != rows || t.Cols() != cols:
		c.fail("%s is %s %v, want %d rows of %d", name, t.DType, t.Shape, rows, cols)
	}
}

// array demands a contiguous tensor of n elements in any shape.
func (c *check) array(name string, t tensor.Tensor, dt tensor.DType, n int) {
	switch {
	case !t.Valid():
		c.fail("%s is missing", name)
	case t.DType != dt:
		c.fail("%s is %s %v, want type %s", name, t.DType, t.Shape, dt)
	case t.Len() != n:
		c.fail("%s is %s %v, want %d elements", name, t.DType, t.Shape, n)
	case !t.Contiguous():
		c.fail("%s %v has rows %d apart, want it contiguous", name, t.Shape, t.Stride)
	}
}

// vector demands a contiguous parameter of n elements in a float type.
func (c *check) vector(name string, t tensor.Tensor, n int) {
	switch t.DType {
	case tensor.BF16, tensor.F16:
		c.array(name, t, t.DType, n)
	default:
		c.array(name, t, tensor.F32, n)
	}
}

// flag demands a flag tensor where there is one.
func (c *check) flag(t tensor.Tensor) {
	if t.Valid() {
		c.array("flag", t, tensor.I32, 1)
	}
}

// divides demands that n is a whole number of parts.
func (c *check) divides(what string, n, parts int) {
	c.that(parts > 0 && n%parts == 0, "%s: %d cannot be shared out to %d", what, n, parts)
}
