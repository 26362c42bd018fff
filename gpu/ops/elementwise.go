package ops

import (
	"longship/gpu"
	"longship/gpu/tensor"
)

// Zero sets every element of Y to 0. Any type, rows may lie apart.
type Zero struct{ Y tensor.Tensor }

// Name is "zero".
func (Zero) Name() string { return "zero" }

// Host clears row by row.
func (k Zero) Host(w gpu.Workers) error {
	y := rawRows(k.Y)
	eachRow(w, k.Y.Rows(), y.width, func(i int) { clear(y.row(i)) })
	return nil
}

// Copy is Y = X, of equal type and shape; rows may lie apart on both sides.
type Copy struct{ Y, X tensor.Tensor }

// Name is "copy".
func (Copy) Name() string { return "copy" }

// Check demands equal types and shapes.
func (k Copy) Check() error {
	var c check
	c.that(k.X.Valid(), "x is missing")
	c.typed("y", k.Y, k.X.DType, k.X.Rows(), k.X.Cols())
	return c.err
}

// Host copies row by row.
func (k Copy) Host(w gpu.Workers) error {
	x, y := rawRows(k.X), rawRows(k.Y)
	eachRow(w, k.X.Rows(), x.width, func(i int) { copy(y.row(i), x.row(i)) })
	return nil
}

// Add is Y = A + B. Y may be A or B.
type Add struct{ Y, A, B tensor.Tensor }

// Name is "add".
func (Add) Name() string { return "add" }

// Check demands equal shapes.
func (k Add) Check() error {
	var c check
	c.matrix("a", k.A, k.A.Rows(), k.A.Cols())
	c.matrix("b", k.B, k.A.Rows(), k.A.Cols())
	c.matrix("y", k.Y, k.A.Rows(), k.A.Cols())
	return c.err
}

// Host adds row by row.
func (k Add) Host(w gpu.Workers) error {
	a, b, y := open(k.A), open(k.B), open(k.Y)
	eachRow(w, a.n, a.cols, func(i int) {
		p, q, out := a.row(i), b.row(i), y.row(i)
		for j, v := range p {
			out[j] = v + q[j]
		}
	})
	return nil
}

// AddScaled is Y += Alpha · X. Alpha has no default: 0 adds nothing.
type AddScaled struct {
	Y, X  tensor.Tensor
	Alpha float32
}

// Name is "add_scaled".
func (AddScaled) Name() string { return "add_scaled" }

// Check demands equal shapes.
func (k AddScaled) Check() error {
	var c check
	c.matrix("x", k.X, k.X.Rows(), k.X.Cols())
	c.matrix("y", k.Y, k.X.Rows(), k.X.Cols())
	return c.err
}

// Host adds row by row.
func (k AddScaled) Host(w gpu.Workers) error {
	x, y := open(k.X), open(k.Y)
	eachRow(w, x.n, x.cols, func(i int) {
		out := y.row(i)
		for j, v := range x.row(i) {
			out[j] += k.Alpha * v
		}
	})
	return nil
}

// Scale is Y = Alpha · X, or Y = Alpha · By[0] · X where By [1] is given. Y may be X.
type Scale struct {
	Y, X  tensor.Tensor
	Alpha float32
	By    tensor.Tensor
}

// Name is "scale".
func (Scale) Name() string { return "scale" }

// Check demands equal shapes.
func (k Scale) Check() error {
	var c check
	c.matrix("x", k.X, k.X.Rows(), k.X.Cols())
	c.matrix("y", k.Y, k.X.Rows(), k.X.Cols())
	if k.By.Valid() {
		c.array("by", k.By, tensor.F32, 1)
	}
	return c.err
}

// Host multiplies row by row.
func (k Scale) Host(w gpu.Workers) error {
	x, y, alpha := open(k.X), open(k.Y), k.Alpha
	if k.By.Valid() {
		alpha *= k.By.Float32s()[0]
	}
	eachRow(w, x.n, x.cols, func(i int) {
		out := y.row(i)
		for j, v := range x.row(i) {
			out[j] = alpha * v
		}
	})
	return nil
}

// AddBias is Y = X + Bias, X and Y [n, D], Bias [D] in any float type. Y may be X.
type AddBias struct{ Y, X, Bias tensor.Tensor }

// Name is "add_bias".
func (AddBias) Name() string { return "add_bias" }

// Check demands shapes that fit.
func (k AddBias) Check() error {
	var c check
	c.matrix("x", k.X, k.X.Rows(), k.X.Cols())
	c.matrix("y", k.Y, k.X.Rows(), k.X.Cols())
	c.vector("bias", k.Bias, k.X.Cols())
	return c.err
}

// Host adds row by row.
func (k AddBias) Host(w gpu.Workers) error {
	x, y, bias := open(k.X), open(k.Y), vector(k.Bias)
	eachRow(w, x.n, x.cols, func(i int) {
		in, out := x.row(i), y.row(i)
		for j, b := range bias {
			out[j] = in[j] + b
		}
	})
	return nil
}
