package flux2_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/flux2"
)

func TestDryRunGivesTheExactWorkspace(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	src, err := memory.NewResident(context.Background(), h.dev, weightSet(c, tensor.E5M2, random))
	require.NoError(t, err)
	defer func() { require.NoError(t, src.Close()) }()
	m := h.modelOn(c, src, set, tinyShape)
	in, target := h.input(c, tinyShape)
	var loss float64
	var pred []float32
	for _, keep := range keeps {
		opt := flux2.TrainOptions{Keep: keep}
		size, _ := h.dry(c, src.Layout(), set, tinyShape, opt)
		require.NoError(t, m.Train(h.ctx(size), in, squared(target, &loss, &pred), opt))
		require.NoError(t, h.stream.Sync())

		small, err := h.dev.NewStream("small")
		require.NoError(t, err)
		ctx := &ops.Ctx{Stream: small, Act: tensor.F32, Arena: tensor.NewArena(h.alloc(size-1), small.Fail)}
		require.NoError(t, m.Train(ctx, in, squared(target, &loss, &pred), opt))
		require.ErrorIs(t, small.Close(), gpu.ErrOutOfMemory)
	}
}

// A step takes no more products than the mathematics asks for.
func TestWorkOfAStep(t *testing.T) {
	h, c := newHost(t), tiny()
	set := h.loras(c, 3)
	ws := weightSet(c, tensor.F32, random)
	work := c.Work(tinyShape, func(module string) int64 {
		var n int64
		for _, l := range set.Layers() {
			if l.Module.Name == module {
				n += l.Params()
			}
		}
		return n
	})
	for name, keep := range keeps {
		_, kernels := h.dry(c, memory.Layout(ws), set, tinyShape, flux2.TrainOptions{Keep: keep})
		var got, want float64
		for _, name := range []string{"gemm", "attention", "attention_backward"} {
			got += float64(kernels[name].FLOPs)
		}
		for i, w := range work {
			want += w.Forward + w.Backward
			if i == c.Blocks()-1 || keep == flux2.KeepAll {
				continue
			}
			want += w.Recompute
			if keep == flux2.KeepAttention {
				want -= w.Attention
			}
		}
		// The first block's input needs no gradient through q, k and v.
		image, refs := tinyShape.Tokens()
		d, r := float64(c.Width()), 3.0
		want -= 2 * float64(tinyShape.B*(tinyShape.L+image+refs)) * (3*d*d + r*d)
		require.InEpsilon(t, want+float64(outerFLOPs(c, tinyShape)), got, 1e-9, "keep %s", name)
	}
}

// outerFLOPs counts the products outside the blocks.
func outerFLOPs(c flux2.Config, s flux2.Shape) int {
	image, refs := s.Tokens()
	d, b := c.Width(), s.B
	embed := (image+refs)*d*c.InChannels + s.L*d*c.TextDim
	vec := 2*(d*c.TimeChannels+d*d) + (6+6+3+2)*d*d
	head := 2 * image * d * c.OutChannels // forward and backward
	return 2 * b * (embed + vec + head)
}
