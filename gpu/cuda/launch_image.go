//go:build cuda

package cuda

import (
	"longship/gpu"
	"longship/gpu/ops"
)

// convTile is the side of the square of channels by positions that a block of
// Conv2D computes.
const convTile = 64

func launchConv2D(s *stream, k gpu.Kernel) error {
	op := k.(ops.Conv2D)
	name, err := typeName(op.Y, op.X)
	if err != nil || op.Y.Len() == 0 {
		return err
	}
	x, y := op.X.Shape, op.Y.Shape
	return s.kernel("conv2d_"+name, dim{x[0] * blocks(y[2]*y[3], convTile), blocks(y[1], convTile)}, dim{pointwiseThreads}, 0,
		s.ptr(op.Y), s.ptr(op.X), s.ptr(op.W), s.ptr(op.Bias), elementType(op.Bias), integer(x[1]), integer(x[2]), integer(x[3]),
		integer(y[1]), integer(y[2]), integer(y[3]), integer(op.W.Shape[2]), integer(op.Stride), integer(op.Pad))
}

func launchGroupNorm(s *stream, k gpu.Kernel) error {
	op := k.(ops.GroupNorm)
	name, err := typeName(op.Y, op.X)
	if err != nil || op.X.Len() == 0 {
		return err
	}
	x := op.X.Shape
	return s.kernel("group_norm_"+name, dim{x[0] * op.Groups}, dim{maxThreads}, 0,
		s.ptr(op.Y), s.ptr(op.X), s.ptr(op.W), elementType(op.W), s.ptr(op.B), elementType(op.B),
		integer(op.Groups), integer(x[1]/op.Groups), integer(x[2]*x[3]), float(op.Eps), boolean(op.SiLU))
}

func launchChannelNorm(s *stream, k gpu.Kernel) error {
	op := k.(ops.ChannelNorm)
	name, err := typeName(op.Y, op.X)
	if err != nil {
		return err
	}
	x := op.X.Shape
	return s.pointwise("channel_norm_"+name, x[0]*x[1], x[2]*x[3], 1,
		s.ptr(op.Y), s.ptr(op.X), s.ptr(op.Mean), s.ptr(op.Std), integer(x[1]), boolean(op.Inverse))
}

func launchUpsample2x(s *stream, k gpu.Kernel) error {
	op := k.(ops.Upsample2x)
	name, err := typeName(op.Y, op.X)
	if err != nil {
		return err
	}
	x := op.X.Shape
	return s.pointwise("upsample2x_"+name, x[0]*x[1], 4*x[2]*x[3], 1, s.ptr(op.Y), s.ptr(op.X), integer(x[2]), integer(x[3]))
}

func launchPatchify(s *stream, k gpu.Kernel) error {
	op := k.(ops.Patchify)
	name, err := typeName(op.Y, op.X)
	if err != nil {
		return err
	}
	image, folded := op.X.Shape, op.Y.Shape
	if op.Inverse {
		image, folded = folded, image
	}
	return s.pointwise("patchify_"+name, image[0]*image[1], image[2]*image[3], 1,
		s.ptr(op.Y), s.ptr(op.X), integer(folded[2]), integer(folded[3]), boolean(op.Inverse))
}
