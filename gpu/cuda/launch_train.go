//go:build cuda

package cuda

import (
	"math"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/internal/rng"
)

// one is a grid or block of one.
var one = dim{1}

// double is a double parameter.
func double(x float64) arg { return math.Float64bits(x) }

func launchSinusoid(s *stream, k gpu.Kernel) error {
	op := k.(ops.Sinusoid)
	if op.Y.Len() == 0 {
		return nil
	}
	return s.kernel("sinusoid", dim{op.Y.Rows()}, dim{128}, 0, list(s.matrix(op.Y), []arg{s.ptr(op.T), integer(op.Y.Cols() / 2)})...)
}

func launchFlowMix(s *stream, k gpu.Kernel) error {
	op := k.(ops.FlowMix)
	return s.pointwise("flow_mix", op.X0.Rows(), op.X0.Cols(), 1,
		list(s.typed(op.XT), s.typed(op.Target), s.typed(op.X0), s.typed(op.Noise), []arg{s.ptr(op.Sigma), integer(op.X0.Rows() / op.Sigma.Len())})...)
}

func launchFlowLoss(s *stream, k gpu.Kernel) error {
	op := k.(ops.FlowLoss)
	samples := op.Weight.Len()
	per, cols := op.V.Rows()/samples, op.V.Cols()
	factor := float64(op.GradScale) * 2 / (float64(per*cols) * float64(samples))
	err := s.kernel("flow_loss", dim{samples}, dim{maxThreads}, 0,
		list([]arg{s.ptr(op.Samples)}, s.typed(op.DV), s.typed(op.V), s.typed(op.Target),
			[]arg{s.ptr(op.Weight), double(factor), integer(per), integer(cols)})...)
	if err != nil {
		return err
	}
	return s.kernel("flow_loss_mean", one, one, 0, s.ptr(op.Loss), s.ptr(op.Flag), s.ptr(op.Samples), integer(samples))
}

// squaresBlocks bounds the blocks, and so the partial sums, of SumSquares; each
// takes at least squaresPiece elements.
const (
	squaresBlocks = 1024
	squaresPiece  = 4096
)

func launchSumSquares(s *stream, k gpu.Kernel) error {
	op := k.(ops.SumSquares)
	x := op.X
	flat(&x)
	n := min(squaresBlocks, blocks(x.Cols(), squaresPiece))
	if x.Len() == 0 {
		return nil
	}
	partial, err := s.scratch(int64(8 * n))
	if err != nil {
		return err
	}
	err = s.kernel("sum_squares", dim{n}, dim{pointwiseThreads}, 0, list([]arg{partial}, s.typed(x), []arg{integer(x.Rows()), integer(x.Cols())})...)
	if err != nil {
		return err
	}
	return s.kernel("sum_partial", one, dim{pointwiseThreads}, 0, s.ptr(op.Sum), partial, integer(n))
}

func launchClipNorm(s *stream, k gpu.Kernel) error {
	op := k.(ops.ClipNorm)
	return s.kernel("clip_norm", one, one, 0, s.ptr(op.Coef), s.ptr(op.Norm), s.ptr(op.Sum), float(float32(op.Max)), s.ptr(op.Flag))
}

func launchEMA(s *stream, k gpu.Kernel) error {
	op := k.(ops.EMA)
	n := op.P.Len()
	if n == 0 {
		return nil
	}
	return s.kernel("ema", dim{blocks(n, pointwiseThreads)}, dim{pointwiseThreads}, 0,
		s.ptr(op.Shadow), s.ptr(op.P), elementType(op.P), float(float32(1-op.Decay)), s.ptr(op.Flag), integer(n))
}

func launchCountStep(s *stream, k gpu.Kernel) error {
	op := k.(ops.CountStep)
	return s.kernel("count_step", one, one, 0, s.ptr(op.Step), s.ptr(op.Flag))
}

// adam is the settings of a step as eight arguments.
func (s *stream) adam(p ops.AdamParams) []arg {
	return []arg{double(p.LR), double(p.Beta1), double(p.Beta2), double(p.Eps), double(p.WeightDecay), s.ptr(p.Step), s.ptr(p.Clip), s.ptr(p.Flag)}
}

// random is a generator's words as three arguments.
func random(g rng.Gen) []arg {
	key, stream := g.Words()
	return []arg{arg(key[0]), arg(key[1]), arg(stream)}
}

// optimBlocks bounds the blocks of an optimiser's kernel, which share out the
// elements: each computes the step's factors once.
const optimBlocks = 4096

func launchAdamW(s *stream, k gpu.Kernel) error {
	op := k.(ops.AdamW)
	name, err := typeName(op.P)
	n := op.P.Len()
	if err != nil || n == 0 {
		return err
	}
	return s.kernel("adamw_"+name, dim{min(optimBlocks, blocks(n, pointwiseThreads))}, dim{pointwiseThreads}, 0,
		list([]arg{s.ptr(op.P), s.ptr(op.G), elementType(op.G), s.ptr(op.M), s.ptr(op.V)}, s.adam(op.Adam), random(op.Round), []arg{integer(n)})...)
}

func launchAdamW8(s *stream, k gpu.Kernel) error {
	op := k.(ops.AdamW8)
	name, err := typeName(op.P)
	n := op.P.Len()
	if err != nil || n == 0 {
		return err
	}
	return s.kernel("adamw8_"+name, dim{min(optimBlocks, ops.Adam8Blocks(n))}, dim{ops.Adam8Block}, 0,
		list([]arg{s.ptr(op.P), s.ptr(op.G), elementType(op.G), s.ptr(op.MCode), s.ptr(op.VCode), s.ptr(op.MMax), s.ptr(op.VMax)}, s.adam(op.Adam),
			[]arg{boolean(op.DecayAfter), boolean(op.FixSign)}, random(op.Round), []arg{integer(n)})...)
}
