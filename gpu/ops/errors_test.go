package ops_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// Faulty arguments are told by name and shape, before anything runs.
func TestFaultyArguments(t *testing.T) {
	f32 := func(shape ...int) tensor.Tensor { return tensor.New(nil, 0, tensor.F32, shape...) }
	for name, c := range map[string]struct {
		op   gpu.Checker
		says string
	}{
		"inner sizes":      {ops.Gemm{C: f32(2, 3), A: f32(2, 5), B: f32(4, 3)}, "b is f32 [4 3], want 5 rows of 3"},
		"transposed":       {ops.Gemm{C: f32(2, 3), A: f32(2, 5), B: f32(5, 3), TransB: true}, "b (transposed) is f32 [5 3], want 5 rows of 5"},
		"missing":          {ops.Gemm{A: f32(2, 5), B: f32(5, 3)}, "c is missing"},
		"type":             {ops.Gemm{C: f32(2, 3), A: tensor.New(nil, 0, tensor.E5M2, 2, 5), B: f32(5, 3)}, "a is e5m2 [2 5], want type f32"},
		"scales":           {ops.Expand{Y: f32(2, 3), W: tensor.Weight{Data: tensor.New(nil, 0, tensor.E5M2, 2, 3), Scale: f32(3)}}, "scale is f32 [3], want 2 elements"},
		"not a weight":     {ops.Expand{Y: f32(2, 3), W: tensor.Weight{Data: tensor.New(nil, 0, tensor.I32, 2, 3)}}, "weight is i32 [2 3], which cannot be expanded"},
		"samples":          {ops.LayerNorm{Y: f32(5, 4), X: f32(5, 4), Shift: f32(2, 4), Scale: f32(2, 4)}, "rows of x over samples: 5 cannot be shared out to 2"},
		"heads":            {ops.Attention{Q: f32(4, 6), K: f32(4, 6), V: f32(4, 6), O: f32(4, 6), Batch: 1, Heads: 4}, "columns of q over heads: 6 cannot be shared out to 4"},
		"no heads":         {ops.Attention{Q: f32(4, 6), K: f32(4, 6), V: f32(4, 6), O: f32(4, 6), Batch: 1}, "columns of q over heads: 6 cannot be shared out to 0"},
		"odd head":         {ops.RoPE{Y: f32(2, 3), X: f32(2, 3), Cos: f32(2, 3), Sin: f32(2, 3)}, "cos has 3 columns, want pairs"},
		"strided state":    {ops.AdamW{P: f32(2, 8).ColRange(0, 4), G: f32(2, 4)}, "p [2 4] has rows 8 apart, want it contiguous"},
		"image size":       {ops.Conv2D{Y: f32(1, 2, 4, 4), X: f32(1, 3, 5, 5), W: f32(2, 3, 3, 3), Stride: 1, Pad: 1, PadEnd: 1}, "y is [1 2 4 4] and x [1 3 5 5], want 5 in dimension 2"},
		"not an image":     {ops.GroupNorm{Y: f32(4, 4), X: f32(4, 4)}, "x is f32 [4 4], want contiguous f32 [b, c, h, w]"},
		"causal, cut keys": {ops.Attention{Q: f32(4, 6), K: f32(2, 6), V: f32(2, 6), O: f32(4, 6), Batch: 1, Heads: 2, Causal: true}, "causal with 4 rows of q and 2 of k"},
	} {
		t.Run(name, func(t *testing.T) {
			require.EqualError(t, c.op.Check(), c.says)

			dry, err := gpu.NewDiscard().NewStream("dry")
			require.NoError(t, err)
			k := c.op.(gpu.Kernel)
			dry.Launch(k)
			require.EqualError(t, dry.Sync(), "stream dry: "+k.Name()+": "+c.says)
		})
	}
}

func TestLookupOutsideTheTable(t *testing.T) {
	b := newBench(t)
	ids := b.counter(7)
	b.stream.Launch(ops.Lookup{Y: b.empty(1, 2), W: tensor.Weight{Data: b.of([]float32{1, 2, 3, 4}, 2, 2)}, IDs: ids})
	require.EqualError(t, b.stream.Sync(), "stream golden: lookup: id 7 at position 0 is outside a table of 2 rows")
}

// A forward on a discarding stream counts work without memory.
func TestDryRun(t *testing.T) {
	dev := gpu.NewDiscard()
	s, err := dev.NewStream("dry")
	require.NoError(t, err)
	c := ops.Ctx{Stream: s, Arena: tensor.MeasuringArena(), Act: tensor.F32}
	x, w, y := c.New(8, 16), c.New(32, 16), c.New(8, 32)
	func() {
		defer c.Scope()()
		h := c.New(1000, 1000)
		c.Run(ops.Zero{Y: h}, ops.Gemm{C: y, A: x, B: w, TransB: true, Alpha: 1})
	}()
	c.Run(ops.Gemm{C: y, A: x, B: w, TransB: true, Alpha: 1})
	require.NoError(t, s.Sync())
	n := dev.Counts()["gemm"]
	require.Equal(t, 2, n.Calls)
	require.Equal(t, int64(2*2*8*32*16), n.FLOPs)
	require.Equal(t, 1, dev.Counts()["zero"].Calls)
	require.GreaterOrEqual(t, c.Arena.Peak(), int64(4*1000*1000))
}

// Non-finite elements come through every product, whatever they are multiplied with.
func TestNonFinitePropagates(t *testing.T) {
	b := newBench(t)
	nan := b.empty(1, 2) // NaN
	zero := b.of([]float32{0, 0}, 1, 2)
	y := b.of([]float32{0, 0, 0, 0}, 2, 2)
	b.run(ops.Gemm{C: y, A: zero, B: nan, TransA: true, Alpha: 1})
	for _, v := range y.Float32s() {
		require.True(t, v != v)
	}
	q := b.of(make([]float32, 16), 2, 8)
	o, lse := b.empty(2, 8), b.empty(2)
	q.Float32s()[3] = nan.Float32s()[0]
	b.run(ops.Attention{O: o, Q: q, K: b.of(make([]float32, 16), 2, 8), V: b.of(make([]float32, 16), 2, 8), LSE: lse, Batch: 1, Heads: 1})
	require.True(t, o.Float32s()[0] != o.Float32s()[0])
}
