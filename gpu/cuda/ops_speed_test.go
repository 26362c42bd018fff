//go:build cuda

package cuda

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// BenchmarkOps has what is not a product of matrices in a step of FLUX.2-dev at
// 512 and 1024 px with 512 text tokens. The bytes are operands read and written
// once; attention counts its operations.
func BenchmarkOps(b *testing.B) {
	d := open(b)
	s, buf, host := parts(b, d, 6<<30)
	fill(b, s, buf)
	const width, inner, heads = 6144, 18432, 48
	for _, tokens := range []int{1536, 4608} {
		at := int64(0)
		take := func(dt tensor.DType, shape ...int) tensor.Tensor {
			t := tensor.New(buf, at, dt, shape...)
			at = (at + t.Bytes() + 255) / 256 * 256
			require.LessOrEqual(b, at, buf.Size())
			return t
		}
		x, y, z := take(tensor.BF16, tokens, width), take(tensor.BF16, tokens, width), take(tensor.BF16, tokens, width)
		proj, grad := take(tensor.BF16, tokens, 3*width+2*inner), take(tensor.BF16, tokens, 3*width+2*inner)
		both := take(tensor.BF16, tokens, width+inner)
		vec, mean, rstd := take(tensor.F32, 1, width), take(tensor.F32, tokens), take(tensor.F32, tokens)
		headStd, lse, delta := take(tensor.F32, tokens, heads), take(tensor.F32, 1, heads, tokens), take(tensor.F32, 1, heads, tokens)
		cos, sin := take(tensor.F32, tokens, 128), take(tensor.F32, tokens, 128)
		normW := take(tensor.BF16, 128)
		weight := tensor.Weight{Data: take(tensor.E5M2, 3*width+2*inner, width), Scale: take(tensor.F32, 3*width+2*inner)}
		wide := take(tensor.BF16, 3*width+2*inner, width)
		q, v := proj.ColRange(0, width), proj.ColRange(2*width, 3*width)
		dq, dk, dv := grad.ColRange(0, width), grad.ColRange(width, 2*width), grad.ColRange(2*width, 3*width)
		gate, up := proj.ColRange(3*width, 3*width+inner), proj.ColRange(3*width+inner, 3*width+2*inner)
		dgate, dup := grad.ColRange(3*width, 3*width+inner), grad.ColRange(3*width+inner, 3*width+2*inner)
		act := both.ColRange(width, width+inner)
		row := int64(tokens * width * 2)
		for _, c := range []struct {
			k     gpu.Kernel
			bytes int64
		}{
			{ops.Expand{Y: wide, W: weight}, 3 * weight.Data.Bytes()},
			{ops.LayerNorm{Y: y, X: x, Shift: vec, Scale: vec, Mean: mean, RStd: rstd, Eps: 1e-6}, 2 * row},
			{ops.LayerNormBackward{DX: y, DY: z, X: x, Scale: vec, Mean: mean, RStd: rstd, Accumulate: true}, 4 * row},
			{ops.RMSNormRoPE{Y: y, X: q, W: normW, RStd: headStd, Cos: cos, Sin: sin, Eps: 1e-6}, 2 * row},
			{ops.RMSNormRoPEBackward{DX: dq, DY: dq, X: q, W: normW, RStd: headStd, Cos: cos, Sin: sin}, 3 * row},
			{ops.SwiGLU{Y: act, Gate: gate, Up: up}, 9 * row},
			{ops.SwiGLUBackward{DGate: dgate, DUp: dup, DY: act, Gate: gate, Up: up}, 15 * row},
			{ops.GateResidual{Y: y, X: x, H: y, Gate: vec}, 3 * row},
			{ops.GateResidualBackward{DH: z, DY: y, Gate: vec}, 2 * row},
			{ops.Attention{O: both.ColRange(0, width), Q: x, K: y, V: v, LSE: lse, Batch: 1, Heads: heads}, 4 * row},
			{ops.AttentionBackward{DQ: dq, DK: dk, DV: dv, DO: z, O: both.ColRange(0, width), Q: x, K: y, V: v, LSE: lse, Delta: delta, Batch: 1, Heads: heads}, 8 * row},
		} {
			b.Run(fmt.Sprintf("%s %d", c.k.Name(), tokens), func(b *testing.B) {
				s.Launch(c.k)
				require.NoError(b, s.Sync())
				const n = 20
				for b.Loop() {
					for range n {
						s.Launch(c.k)
					}
					require.NoError(b, s.Sync())
				}
				seconds := b.Elapsed().Seconds() / float64(b.N) / n
				b.ReportMetric(seconds*1e6, "us")
				b.ReportMetric(float64(c.bytes)/seconds/1e9, "GB/s")
				if cost, ok := c.k.(gpu.Coster); ok && cost.Cost().FLOPs > 0 {
					b.ReportMetric(float64(cost.Cost().FLOPs)/seconds/1e12, "TFLOP/s")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
	close2(b, d, s, buf, host)
}
