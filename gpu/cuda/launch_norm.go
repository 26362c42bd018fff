//go:build cuda

package cuda

import (
	"fmt"
	"math/bits"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

const maxThreads = 1024

// held is how many vectors of `width` elements a thread of a norm holds at most
// (kernels/norm.cu).
func held(width int) int {
	if width <= 2 {
		return 8
	}
	return 4
}

// rowThreads returns the block that holds a row of cols elements: whole warps.
func rowThreads(cols, width int) (int, error) {
	threads := roundUp(blocks(blocks(cols, width), held(width)), 32)
	if threads > maxThreads {
		return 0, fmt.Errorf("rows of %d elements, at most %d fit a block (vectors of %d)", cols, maxThreads*held(width)*width, width)
	}
	return threads, nil
}

func launchLayerNorm(s *stream, k gpu.Kernel) error {
	op := k.(ops.LayerNorm)
	suffix, width, err := s.variant(op.X.Cols(), op.Y, op.X, op.Shift, op.Scale)
	if err != nil || op.X.Len() == 0 {
		return err
	}
	threads, err := rowThreads(op.X.Cols(), width)
	if err != nil {
		return err
	}
	return s.kernel("layer_norm_"+suffix, dim{op.X.Rows()}, dim{threads}, 0,
		list(s.matrix(op.Y), s.matrix(op.X), s.matrix(op.Shift), s.matrix(op.Scale),
			[]arg{perSample(op.X, op.Scale), s.ptr(op.Mean), s.ptr(op.RStd), float(op.Eps), integer(op.X.Cols())})...)
}

func launchLayerNormBackward(s *stream, k gpu.Kernel) error {
	op := k.(ops.LayerNormBackward)
	suffix, width, err := s.variant(op.X.Cols(), op.DX, op.DY, op.X, op.Scale)
	if err != nil || op.X.Len() == 0 {
		return err
	}
	threads, err := rowThreads(op.X.Cols(), width)
	if err != nil {
		return err
	}
	for _, sums := range [][2]tensor.Tensor{{op.DScale, {}}, {{}, op.DShift}} { // first, since DX may overwrite DY
		if !sums[0].Valid() && !sums[1].Valid() {
			continue
		}
		err := s.columns("layer_norm_columns_"+typeNames[op.X.DType], op.X.Cols(), op.Scale.Rows(),
			list(s.matrix(sums[0]), s.matrix(sums[1]), s.matrix(op.DY), s.matrix(op.X),
				[]arg{s.ptr(op.Mean), s.ptr(op.RStd), perSample(op.X, op.Scale), integer(op.X.Cols())})...)
		if err != nil {
			return err
		}
	}
	return s.kernel("layer_norm_backward_"+suffix, dim{op.X.Rows()}, dim{threads}, 0,
		list(s.matrix(op.DX), s.matrix(op.DY), s.matrix(op.X), s.matrix(op.Scale),
			[]arg{perSample(op.X, op.Scale), s.ptr(op.Mean), s.ptr(op.RStd), boolean(op.Accumulate), integer(op.X.Cols())})...)
}

// groups is how a norm over groups of columns is laid out: a team of threads a group.
type groups struct {
	suffix       string
	grid, block  dim
	count, width int // groups of a row, columns of a group
	team         int
}

// groups lays a norm out whose groups are as wide as w. cos and sin, where
// given, are read in vectors too.
func (s *stream) groups(x, w, cos, sin tensor.Tensor, acts ...tensor.Tensor) (g groups, err error) {
	g.width = w.Len()
	g.count = x.Cols() / g.width
	suffix, vector, err := s.variant(g.width, acts...)
	if err != nil {
		return g, err
	}
	if vector > 1 && !s.aligned(w.View(w.Len()), cos, sin) {
		suffix, vector = typeNames[x.DType], 1
	}
	if vector == 1 { // pairs stay together
		suffix, vector = suffix+"x2", 2
	}
	if g.width%vector != 0 {
		return g, fmt.Errorf("groups of %d columns, want an even number", g.width)
	}
	g.suffix = suffix
	vectors := blocks(g.width, vector)
	total := x.Rows() * g.count
	if vectors <= 32*held(vector) { // several groups a block
		g.team = min(32, 1<<bits.Len(uint(vectors-1)))
		g.block = dim{pointwiseThreads}
		g.grid = dim{blocks(total, pointwiseThreads/g.team)}
		return g, nil
	}
	g.team, err = rowThreads(g.width, vector)
	g.block, g.grid = dim{g.team}, dim{total}
	return g, err
}

// rotation is a rotation's tables as five arguments, none where cos is absent.
func (s *stream) rotation(cos, sin tensor.Tensor) []arg {
	return list(s.matrix(cos), s.matrix(sin), []arg{integer(max(cos.Rows(), 1))})
}

func (s *stream) rmsNorm(op ops.RMSNorm, cos, sin tensor.Tensor) error {
	g, err := s.groups(op.X, op.W, cos, sin, op.Y, op.X)
	if err != nil || op.X.Len() == 0 {
		return err
	}
	return s.kernel("rms_norm_"+g.suffix, g.grid, g.block, 0,
		list(s.matrix(op.Y), s.matrix(op.X), []arg{s.ptr(op.W), elementType(op.W), s.ptr(op.RStd)}, s.rotation(cos, sin),
			[]arg{float(op.Eps), integer(op.X.Rows()), integer(g.count), integer(g.width), integer(g.team)})...)
}

func (s *stream) rmsNormBackward(op ops.RMSNormBackward, cos, sin tensor.Tensor) error {
	g, err := s.groups(op.X, op.W, cos, sin, op.DX, op.DY, op.X)
	if err != nil || op.X.Len() == 0 {
		return err
	}
	shape := []arg{integer(op.X.Rows()), integer(g.count), integer(g.width)}
	if op.DW.Valid() { // first, since DX may overwrite DY
		err := s.columns("rms_norm_columns_"+typeNames[op.X.DType], g.width, 1,
			list([]arg{s.ptr(op.DW)}, s.matrix(op.DY), s.matrix(op.X), []arg{s.ptr(op.RStd)}, s.rotation(cos, sin), shape)...)
		if err != nil {
			return err
		}
	}
	return s.kernel("rms_norm_backward_"+g.suffix, g.grid, g.block, 0,
		list(s.matrix(op.DX), s.matrix(op.DY), s.matrix(op.X), []arg{s.ptr(op.W), elementType(op.W), s.ptr(op.RStd)}, s.rotation(cos, sin),
			[]arg{boolean(op.Accumulate)}, shape, []arg{integer(g.team)})...)
}

func launchRMSNorm(s *stream, k gpu.Kernel) error {
	return s.rmsNorm(k.(ops.RMSNorm), tensor.Tensor{}, tensor.Tensor{})
}

func launchRMSNormBackward(s *stream, k gpu.Kernel) error {
	return s.rmsNormBackward(k.(ops.RMSNormBackward), tensor.Tensor{}, tensor.Tensor{})
}

func launchRMSNormRoPE(s *stream, k gpu.Kernel) error {
	op := k.(ops.RMSNormRoPE)
	return s.rmsNorm(ops.RMSNorm{Y: op.Y, X: op.X, W: op.W, RStd: op.RStd, Eps: op.Eps}, op.Cos, op.Sin)
}

func launchRMSNormRoPEBackward(s *stream, k gpu.Kernel) error {
	op := k.(ops.RMSNormRoPEBackward)
	return s.rmsNormBackward(ops.RMSNormBackward{DX: op.DX, DY: op.DY, X: op.X, W: op.W, RStd: op.RStd, DW: op.DW}, op.Cos, op.Sin)
}

func launchRoPE(s *stream, k gpu.Kernel) error {
	op := k.(ops.RoPE)
	name, err := typeName(op.X, op.Y)
	if err != nil {
		return err
	}
	return s.pointwise("rope_"+name, op.X.Rows(), op.X.Cols()/2, 1,
		list(s.matrix(op.Y), s.matrix(op.X), s.rotation(op.Cos, op.Sin), []arg{boolean(op.Half), boolean(op.Inverse), integer(op.Cos.Cols())})...)
}
