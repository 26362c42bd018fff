package ops

import (
	"longship/gpu"
	"longship/gpu/tensor"
)

// Concat joins two sequences sample by sample: Y[b] = [A[b] ; B[b]]. A is
// [Batch·Sa, D], B [Batch·Sb, D], Y [Batch·(Sa+Sb), D]; FLUX.2 puts the text
// (A) first. Any type.
type Concat struct {
	Y, A, B tensor.Tensor
	Batch   int
}

// Name is "concat".
func (Concat) Name() string { return "concat" }

// Check demands shapes that fit.
func (k Concat) Check() error {
	var c check
	c.joined("y", k.Y, k.A, k.B, k.Batch)
	return c.err
}

func (c *check) joined(name string, y, a, b tensor.Tensor, batch int) {
	c.that(a.Valid(), "a is missing")
	c.divides("rows of a over samples", a.Rows(), batch)
	c.divides("rows of b over samples", b.Rows(), batch)
	c.typed("b", b, a.DType, b.Rows(), a.Cols())
	c.typed(name, y, a.DType, a.Rows()+b.Rows(), a.Cols())
}

// Host copies row by row.
func (k Concat) Host(w gpu.Workers) error {
	joinedRows(w, k.Y, k.A, k.B, k.Batch, func(joined, part []byte) { copy(joined, part) })
	return nil
}

// Split is the inverse of Concat, and its gradient: X[b] = [A[b] ; B[b]] is
// taken apart into A and B.
type Split struct {
	A, B, X tensor.Tensor
	Batch   int
}

// Name is "split".
func (Split) Name() string { return "split" }

// Check demands shapes that fit.
func (k Split) Check() error {
	var c check
	c.joined("x", k.X, k.A, k.B, k.Batch)
	return c.err
}

// Host copies row by row.
func (k Split) Host(w gpu.Workers) error {
	joinedRows(w, k.X, k.A, k.B, k.Batch, func(joined, part []byte) { copy(part, joined) })
	return nil
}

// joinedRows calls move for every row of a joined tensor and the row of a or b that belongs to it.
func joinedRows(w gpu.Workers, joined, a, b tensor.Tensor, batch int, move func(joined, part []byte)) {
	y, first, second := rawRows(joined), rawRows(a), rawRows(b)
	sa, sb := a.Rows()/batch, b.Rows()/batch
	eachRow(w, joined.Rows(), y.width, func(i int) {
		item, s := i/(sa+sb), i%(sa+sb)
		if s < sa {
			move(y.row(i), first.row(item*sa+s))
		} else {
			move(y.row(i), second.row(item*sb+s-sa))
		}
	})
}
