//go:build cuda

package cuda

import (
	"fmt"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// part is rows [from, from+rows) of every sample of a tensor with that many rows a sample.
type part struct {
	t                 tensor.Tensor
	from, rows, total int
}

// whole is a tensor as one sample.
func whole(t tensor.Tensor) part { return part{t: t, rows: t.Rows(), total: t.Rows()} }

// move queues dst = src for parts of equal shape, sample by sample; an absent
// src gives zeros.
func (s *stream) move(dst, src part, samples int) error {
	if !src.t.Valid() {
		src.total = dst.total
	}
	y, x := dst.t.RowRange(dst.from, dst.t.Rows()), src.t
	if x.Valid() {
		x = x.RowRange(src.from, x.Rows())
	}
	size := y.DType.Size()
	bytes := y.Cols() * size
	rowBytes := func(t tensor.Tensor) int { return int(stride(t)) * size }
	if samples == 1 && y.Contiguous() && (!x.Valid() || x.Contiguous()) { // one long row
		bytes *= dst.rows
		dst.rows = min(dst.rows, 1)
	}
	unit := 1
	for _, u := range []int{16, 4} {
		fits := bytes%u == 0
		for _, t := range []tensor.Tensor{y, x} {
			fits = fits && (!t.Valid() || s.ptr(t)%arg(u) == 0 && (samples*dst.rows == 1 || rowBytes(t)%u == 0))
		}
		if fits {
			unit = u
			break
		}
	}
	place := func(t tensor.Tensor, total int) []arg {
		row := rowBytes(t) / unit
		return []arg{s.ptr(t), integer(row), integer(row * total)}
	}
	return s.pointwise(fmt.Sprintf("copy_%d", unit), samples*dst.rows, bytes/unit, 1,
		list(place(y, dst.total), place(x, src.total), []arg{integer(max(dst.rows, 1))})...)
}

func launchCopy(s *stream, k gpu.Kernel) error {
	op := k.(ops.Copy)
	return s.move(whole(op.Y), whole(op.X), 1)
}

func launchZero(s *stream, k gpu.Kernel) error { return s.move(whole(k.(ops.Zero).Y), part{}, 1) }

// halves are the rows of a joined tensor that belong to a and to b.
func halves(joined, a, b tensor.Tensor, batch int) (first, second part) {
	na, nb := a.Rows()/batch, b.Rows()/batch
	return part{joined, 0, na, na + nb}, part{joined, na, nb, na + nb}
}

// bySample is a whole tensor, shared out to samples.
func bySample(t tensor.Tensor, batch int) part {
	return part{t: t, rows: t.Rows() / batch, total: t.Rows() / batch}
}

func launchConcat(s *stream, k gpu.Kernel) error {
	op := k.(ops.Concat)
	first, second := halves(op.Y, op.A, op.B, op.Batch)
	if err := s.move(first, bySample(op.A, op.Batch), op.Batch); err != nil {
		return err
	}
	return s.move(second, bySample(op.B, op.Batch), op.Batch)
}

func launchSplit(s *stream, k gpu.Kernel) error {
	op := k.(ops.Split)
	first, second := halves(op.X, op.A, op.B, op.Batch)
	if err := s.move(bySample(op.A, op.Batch), first, op.Batch); err != nil {
		return err
	}
	return s.move(bySample(op.B, op.Batch), second, op.Batch)
}

func launchTranspose(s *stream, k gpu.Kernel) error {
	op := k.(ops.Transpose)
	name, err := typeName(op.Y, op.X)
	if err != nil || op.X.Len() == 0 {
		return err
	}
	r, c := op.X.Rows()/op.Batch, op.X.Cols()
	return s.kernel("transpose_"+name, dim{op.Batch * blocks(r, 32) * blocks(c, 32)}, dim{pointwiseThreads}, 0,
		list(s.matrix(op.Y), s.matrix(op.X), []arg{integer(r), integer(c)})...)
}
