package ops

import (
	"longship/gpu"
	"longship/gpu/tensor"
)

// GateResidual is Y = X + Gate[b] · H: a branch joins the residual stream.
//
// X, H, Y [B·S, D], Gate [B, D]: row i belongs to sample i / S. Y may be X or H. The
// gradient of X is DY itself; that of H is GateResidualBackward. Without Gate the
// factor is 1.
type GateResidual struct {
	Y, X, H, Gate tensor.Tensor
}

// Name is "gate_residual".
func (GateResidual) Name() string { return "gate_residual" }

// Check demands shapes that fit.
func (k GateResidual) Check() error {
	var c check
	n, d := k.X.Rows(), k.X.Cols()
	c.matrix("x", k.X, n, d)
	c.matrix("h", k.H, n, d)
	c.matrix("y", k.Y, n, d)
	c.gate(k.Gate, n, d)
	return c.err
}

func (c *check) gate(gate tensor.Tensor, n, d int) {
	if gate.Valid() {
		c.matrix("gate", gate, gate.Rows(), d)
		c.divides("rows over samples of gate", n, gate.Rows())
	}
}

// Host adds row by row.
func (k GateResidual) Host(w gpu.Workers) error {
	x, h, y, gate := open(k.X), open(k.H), open(k.Y), open(k.Gate)
	eachRow(w, x.n, x.cols, func(i int) {
		in, branch, out := x.row(i), h.row(i), y.row(i)
		if !gate.valid() {
			for j, v := range in {
				out[j] = v + branch[j]
			}
			return
		}
		g := gate.row(i * gate.n / x.n)
		for j, v := range in {
			out[j] = v + g[j]*branch[j]
		}
	})
	return nil
}

// GateResidualBackward is DH = Gate[b] · DY (assigned), and where DGate is
// given DGate[b] += Σ DY·H over the sample's rows. H is read only for DGate. DH
// may be DY.
type GateResidualBackward struct {
	DH, DY, Gate tensor.Tensor
	DGate, H     tensor.Tensor
}

// Name is "gate_residual_backward".
func (GateResidualBackward) Name() string { return "gate_residual_backward" }

// Check demands shapes that fit.
func (k GateResidualBackward) Check() error {
	var c check
	n, d := k.DY.Rows(), k.DY.Cols()
	c.matrix("dy", k.DY, n, d)
	c.matrix("dh", k.DH, n, d)
	c.that(k.Gate.Valid(), "gate is missing")
	c.gate(k.Gate, n, d)
	if k.DGate.Valid() {
		c.matrix("h", k.H, n, d)
		c.matrix("dgate", k.DGate, k.Gate.Rows(), d)
	}
	return c.err
}

// Host computes DGate first, since DH may overwrite DY.
func (k GateResidualBackward) Host(w gpu.Workers) error {
	dh, dy, gate := open(k.DH), open(k.DY), open(k.Gate)
	if k.DGate.Valid() {
		h, dgate := open(k.H), open(k.DGate)
		per := dy.n / gate.n
		for b := range gate.n {
			sumPieces(w, dgate.row(b), per, grain(dy.cols), func(acc []float32, lo, hi int) {
				for i := b*per + lo; i < b*per+hi; i++ {
					branch := h.row(i)
					for j, v := range dy.row(i) {
						acc[j] += v * branch[j]
					}
				}
			})
		}
	}
	eachRow(w, dy.n, dy.cols, func(i int) {
		up, out, g := dy.row(i), dh.row(i), gate.row(i*gate.n/dy.n)
		for j, v := range up {
			out[j] = g[j] * v
		}
	})
	return nil
}
