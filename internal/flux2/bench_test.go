package flux2_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/adapter"
	"longship/internal/flux2"
)

// One training pass of a model of the quickstart's size: width 128, one double
// and two single blocks, 64 image and 64 text tokens, rank 16.
func BenchmarkTrainQuickstart(b *testing.B) {
	for name, keep := range keeps {
		b.Run(name, func(b *testing.B) {
			h, c := newHost(b), smallConfig()
			shape := flux2.Shape{B: 1, H: 8, W: 8, L: 64}
			set := h.loras(c, 16)
			m := h.model(c, weightSet(c, tensor.E5M2, random), set, shape)
			in, target := h.input(c, shape)
			opt := flux2.TrainOptions{Keep: keep}
			size, kernels := h.dry(c, memory.Layout(weightSet(c, tensor.E5M2, random)), set, shape, opt)
			ctx := h.ctx(size)
			var flops int64
			for _, k := range kernels {
				flops += k.FLOPs
			}
			var loss float64
			var pred []float32
			step := squared(target, &loss, &pred)
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, m.Train(ctx, in, step, opt))
				require.NoError(b, h.stream.Sync())
			}
			b.ReportMetric(float64(flops)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

// What the host does to queue one training pass of dev: 512 px, batch 1, all
// modules trained.
func BenchmarkQueueDev(b *testing.B) {
	c := flux2.Default()
	shape := flux2.Shape{B: 1, H: 32, W: 32, L: 512}
	targets, err := adapter.Select(c.Modules(), nil, nil)
	require.NoError(b, err)
	dev := gpu.NewDiscard()
	set, err := adapter.New(dev, c.Blocks(), adapter.Layers(targets, 16, 16), tensor.F32)
	require.NoError(b, err)
	m, err := flux2.New(c, memory.Layout(weightSet(c, tensor.E5M2, nil)), set)
	require.NoError(b, err)
	st, err := dev.NewStream("compute")
	require.NoError(b, err)
	require.NoError(b, m.Prepare(dev, st, shape))
	x := &ops.Ctx{Stream: st, Arena: tensor.MeasuringArena(), Act: tensor.F32}
	in := flux2.Input{
		Shape:  shape,
		Tokens: tensor.New(nil, 0, tensor.F32, 1, 1024, c.InChannels), Text: tensor.New(nil, 0, tensor.F32, 1, 512, c.TextDim),
		Timestep: tensor.New(nil, 0, tensor.F32, 1), Guidance: tensor.New(nil, 0, tensor.F32, 1),
	}
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, m.Train(x, in, func(*ops.Ctx, tensor.Tensor, tensor.Tensor) {}, flux2.TrainOptions{}))
	}
	require.NoError(b, st.Close())
}
