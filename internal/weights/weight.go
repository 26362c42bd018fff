package weights

import (
	"fmt"
	"slices"

	"longship/internal/safetensors"
)

// Weight is a model's weight in its files: pieces of one or several tensors of
// one type, one below the other. A row is what one index of the first dimension
// holds; a scalar counts as one row.
type Weight struct {
	Name   string
	Shape  []int
	pieces []piece
}

// piece is rows [lo, hi) of a tensor.
type piece struct {
	tensor safetensors.Tensor
	lo, hi int
	scale  float32 // what the stored values are multiplied by, 1 unless the file says otherwise
}

func newPiece(set *safetensors.Set, x safetensors.Tensor, p Part) (piece, error) {
	if p.Hi == 0 {
		p.Hi = rows(x.Shape)
	}
	if p.Lo < 0 || p.Lo > p.Hi || p.Hi > rows(x.Shape) {
		return piece{}, x.Errorf("rows [%d,%d) are wanted, its shape is %v", p.Lo, p.Hi, x.Shape)
	}
	if !x.DType.IsFloat() {
		return piece{}, x.Errorf("%s is no type for weights", x.DType)
	}
	scale, err := scaleOf(set, x)
	return piece{tensor: x, lo: p.Lo, hi: p.Hi, scale: scale}, err
}

// check compares what the pieces give with what is wanted.
func (w Weight) check() error {
	first := w.pieces[0].tensor
	n := 0
	for _, p := range w.pieces {
		n += p.hi - p.lo
		if p.tensor.DType != first.DType {
			return p.tensor.Errorf("it is %s, but %q, with which it makes up %s, is %s", p.tensor.DType, first.Name, w.Name, first.DType)
		}
		if !slices.Equal(trim(tail(p.tensor.Shape)), trim(tail(w.Shape))) {
			return p.tensor.Errorf("shape is %v, wanted for %s%v", p.tensor.Shape, w.Name, w.Shape)
		}
	}
	if n != w.Rows() {
		if len(w.pieces) == 1 {
			return first.Errorf("shape is %v, wanted %v", first.Shape, w.Shape)
		}
		return first.Errorf("%d rows with its neighbours, wanted for %s%v", n, w.Name, w.Shape)
	}
	return nil
}

// rows returns the first dimension, tail the others.
func rows(shape []int) int {
	if len(shape) == 0 {
		return 1
	}
	return shape[0]
}

func tail(shape []int) []int {
	if len(shape) == 0 {
		return nil
	}
	return shape[1:]
}

// Rows returns the number of rows.
func (w Weight) Rows() int { return rows(w.Shape) }

// Cols returns the elements of a row.
func (w Weight) Cols() int {
	n := 1
	for _, d := range tail(w.Shape) {
		n *= d
	}
	return n
}

// Len returns the number of elements.
func (w Weight) Len() int { return w.Rows() * w.Cols() }

// DType returns the type that the file stores.
func (w Weight) DType() safetensors.DType { return w.pieces[0].tensor.DType }

// Scaled says whether the stored values must be multiplied by scales of the
// file: then only Floats gives the weights themselves.
func (w Weight) Scaled() bool {
	return slices.ContainsFunc(w.pieces, func(p piece) bool { return p.scale != 1 })
}

// ReadRows fills dst with the stored bytes of rows from lo on, as many as fit.
func (w Weight) ReadRows(dst []byte, lo int) error {
	size := w.Cols() * w.DType().Bits() / 8
	return w.walk(lo, len(dst)/size, func(p piece, row, n, done int) error {
		_, err := p.tensor.ReadAt(dst[done*size:(done+n)*size], int64(row)*int64(size))
		return err
	})
}

// Floats fills dst with rows from lo on, as many as fit, as float32.
func (w Weight) Floats(dst []float32, lo int) error {
	cols := w.Cols()
	return w.walk(lo, len(dst)/cols, func(p piece, row, n, done int) error {
		out := dst[done*cols : (done+n)*cols]
		if err := p.tensor.Floats(out, row*cols); err != nil {
			return err
		}
		if p.scale != 1 {
			for i := range out {
				out[i] *= p.scale
			}
		}
		return nil
	})
}

// Float32 returns the whole weight as float32.
func (w Weight) Float32() ([]float32, error) {
	dst := make([]float32, w.Len())
	return dst, w.Floats(dst, 0)
}

// walk calls fn for each piece of rows [lo, lo+n): row is the piece's first row
// in its tensor, done the rows before it.
func (w Weight) walk(lo, n int, fn func(p piece, row, n, done int) error) error {
	if lo < 0 || lo+n > w.Rows() {
		panic(fmt.Sprintf("weights: rows [%d,%d) of %s%v", lo, lo+n, w.Name, w.Shape))
	}
	done := 0
	for _, p := range w.pieces {
		have := p.hi - p.lo
		if skip := min(lo, have); skip > 0 {
			lo -= skip
			p.lo += skip
			have -= skip
		}
		if m := min(n-done, have); m > 0 {
			if err := fn(p, p.lo, m, done); err != nil {
				return err
			}
			done += m
		}
	}
	return nil
}

// Errorf makes an error that names the tensor and the file that row is from.
func (w Weight) Errorf(row int, format string, args ...any) error {
	var err error
	_ = w.walk(row, 1, func(p piece, _, _, _ int) error {
		err = p.tensor.Errorf(format, args...)
		return nil
	})
	return err
}

// Drop tells the system that the weight will not be read again soon.
func (w Weight) Drop() {
	for _, p := range w.pieces {
		p.tensor.Drop()
	}
}
