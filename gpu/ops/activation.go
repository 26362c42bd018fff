package ops

import (
	"longship/gpu"
	"longship/gpu/tensor"
)

// SwiGLU is Y = silu(Gate) · Up, silu(x) = x·sigmoid(x). All are [n, h]; where
// one Linear gives both, Gate and Up are column ranges of its output (FLUX.2:
// gate first). Y may be Gate or Up.
type SwiGLU struct {
	Y, Gate, Up tensor.Tensor
}

// Name is "swiglu".
func (SwiGLU) Name() string { return "swiglu" }

// Check demands equal shapes.
func (k SwiGLU) Check() error {
	var c check
	c.matrix("gate", k.Gate, k.Gate.Rows(), k.Gate.Cols())
	c.matrix("up", k.Up, k.Gate.Rows(), k.Gate.Cols())
	c.matrix("y", k.Y, k.Gate.Rows(), k.Gate.Cols())
	return c.err
}

// Host works row by row.
func (k SwiGLU) Host(w gpu.Workers) error {
	gate, up, y := open(k.Gate), open(k.Up), open(k.Y)
	eachRow(w, gate.n, 4*gate.cols, func(i int) {
		a, b, out := gate.row(i), up.row(i), y.row(i)
		for j, v := range a {
			out[j] = v * sigmoid(v) * b[j]
		}
	})
	return nil
}

// SwiGLUBackward is the gradient of SwiGLU, with s = sigmoid(Gate):
//
//	DGate = DY · Up · s·(1 + Gate·(1 - s)),   DUp = DY · silu(Gate)
//
// Both are assigned; they may be Gate and Up themselves.
type SwiGLUBackward struct {
	DGate, DUp, DY tensor.Tensor
	Gate, Up       tensor.Tensor
}

// Name is "swiglu_backward".
func (SwiGLUBackward) Name() string { return "swiglu_backward" }

// Check demands equal shapes.
func (k SwiGLUBackward) Check() error {
	var c check
	n, h := k.Gate.Rows(), k.Gate.Cols()
	c.matrix("gate", k.Gate, n, h)
	c.matrix("up", k.Up, n, h)
	c.matrix("dy", k.DY, n, h)
	c.matrix("dgate", k.DGate, n, h)
	c.matrix("dup", k.DUp, n, h)
	return c.err
}

// Host works row by row.
func (k SwiGLUBackward) Host(w gpu.Workers) error {
	gate, up, dy, dgate, dup := open(k.Gate), open(k.Up), open(k.DY), open(k.DGate), open(k.DUp)
	eachRow(w, gate.n, 4*gate.cols, func(i int) {
		a, b, d, da, db := gate.row(i), up.row(i), dy.row(i), dgate.row(i), dup.row(i)
		for j, v := range d {
			x, u := a[j], b[j]
			s := sigmoid(x)
			da[j] = v * u * (s * (1 + x*(1-s)))
			db[j] = v * (x * s)
		}
	})
	return nil
}

// SiLU is Y = X·sigmoid(X). Y may be X.
type SiLU struct {
	Y, X tensor.Tensor
}

// Name is "silu".
func (SiLU) Name() string { return "silu" }

// Check demands equal shapes.
func (k SiLU) Check() error {
	var c check
	c.matrix("x", k.X, k.X.Rows(), k.X.Cols())
	c.matrix("y", k.Y, k.X.Rows(), k.X.Cols())
	return c.err
}

// Host works row by row.
func (k SiLU) Host(w gpu.Workers) error {
	x, y := open(k.X), open(k.Y)
	eachRow(w, x.n, 4*x.cols, func(i int) {
		in, out := x.row(i), y.row(i)
		for j, v := range in {
			out[j] = v * sigmoid(v)
		}
	})
	return nil
}

// SiLUBackward is DX = DY · s·(1 + X·(1 - s)), s = sigmoid(X), assigned. DX may be DY.
type SiLUBackward struct {
	DX, DY, X tensor.Tensor
}

// Name is "silu_backward".
func (SiLUBackward) Name() string { return "silu_backward" }

// Check demands equal shapes.
func (k SiLUBackward) Check() error {
	var c check
	c.matrix("x", k.X, k.X.Rows(), k.X.Cols())
	c.matrix("dy", k.DY, k.X.Rows(), k.X.Cols())
	c.matrix("dx", k.DX, k.X.Rows(), k.X.Cols())
	return c.err
}

// Host works row by row.
func (k SiLUBackward) Host(w gpu.Workers) error {
	x, dy, dx := open(k.X), open(k.DY), open(k.DX)
	eachRow(w, x.n, 4*x.cols, func(i int) {
		in, up, out := x.row(i), dy.row(i), dx.row(i)
		for j, v := range up {
			s := sigmoid(in[j])
			out[j] = v * (s * (1 + in[j]*(1-s)))
		}
	})
	return nil
}
