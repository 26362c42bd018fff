package forecast_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/forecast"
)

// work moves so many bytes of the card's memory.
type work struct{ bytes int64 }

func (work) Name() string                   { return "work" }
func (work) Host(gpu.Workers) error         { return nil }
func (w work) Cost() gpu.Cost               { return gpu.Cost{Bytes: w.bytes} }
func ms(n float64) time.Duration            { return time.Duration(n * float64(time.Millisecond)) }
func card(c forecast.Card) *forecast.Device { return forecast.New(c) }

// round is a card on which a unit of 1 MiB is copied in a millisecond and a
// kernel takes a millisecond for 1 MiB.
var round = forecast.Card{Name: "round", Bytes: 1 << 30, Copy: 1000 << 20, Memory: 1000 << 20, Gemm: 1e9, Attention: 1e9, AttentionBackward: 1e9}

// Steps of eight blocks of one unit, three in the ring, worked out by hand.
func TestStepsByHand(t *testing.T) {
	const n, slots, mib = 8, 3, 1 << 20
	for name, c := range map[string]struct {
		share             float64 // streamed
		forward, backward float64 // ms that a block computes
		want              float64 // ms of a step
	}{
		"all resident": {0, 2, 5, n * (2 + 5)},
		// Both turns find the ring filled: each half copies the other five.
		"bound by copies": {1, 0, 0, 2 * (n - slots)},
		// A copy takes less than any block: none is waited for.
		"bound by compute": {1, 2, 5, n * (2 + 5)},
		// The backward waits for nothing. The forward begins with three blocks in
		// the ring, and copies of the other five, of which the first begins when
		// the first block has left its slot, after 0.5: 0.5 + 5, and the block
		// that came last computes 0.5.
		"bound by copies forward": {1, 0.5, 5, 0.5 + 5 + 0.5 + n*5},
	} {
		t.Run(name, func(t *testing.T) {
			dev := card(round)
			set := &memory.WeightSet{}
			for i := range n {
				set.Units = append(set.Units, memory.Unit{Name: fmt.Sprint(i), Block: i, Bytes: mib})
			}
			compute, err := dev.NewStream("compute")
			require.NoError(t, err)
			s, err := memory.NewStreamer(context.Background(), dev, set, memory.Options{Streamed: memory.Spread(set.Units, c.share), Slots: slots})
			require.NoError(t, err)
			s.Bind(compute)
			var order []int
			for b := range n {
				order = append(order, b)
			}
			for b := range n {
				order = append(order, n-1-b)
			}
			s.Plan(order...)
			var ends []gpu.Stamp
			for range 4 {
				s.Plan(order...)
				for i, b := range order {
					_, err := s.Acquire(b)
					require.NoError(t, err)
					takes := c.forward
					if i >= n {
						takes = c.backward
					}
					compute.Launch(work{int64(takes * mib)})
					s.Release(b)
				}
				ends = append(ends, dev.Stamp(compute))
			}
			require.NoError(t, compute.Sync())
			at, err := dev.Times(ends[2], ends[3])
			require.NoError(t, err)
			require.InDelta(t, ms(c.want), at[0], float64(time.Microsecond), "%v", at[0])
			require.NoError(t, s.Close())
		})
	}
}

func TestKernelsTakeTheLongerOfTheirFloors(t *testing.T) {
	dev := card(round)
	s, err := dev.NewStream("compute")
	require.NoError(t, err)
	x := func(shape ...int) tensor.Tensor { return tensor.New(nil, 0, tensor.F32, shape...) }
	for name, c := range map[string]struct {
		kernel gpu.Kernel
		want   float64
	}{
		"operands, each once":        {ops.Cast{Y: x(1, 1<<17), X: x(1, 1<<17)}, 1},
		"of no cost of its own":      {ops.Zero{Y: x(1 << 18)}, 1},
		"a product, by operations":   {ops.Gemm{C: x(100, 100), A: x(100, 50), B: x(50, 100), Alpha: 1}, 1},
		"a narrow product, by bytes": {ops.Gemm{C: x(1<<16, 1), A: x(1<<16, 3), B: x(3, 1), Alpha: 1}, float64(1<<18*4+12) / (1 << 20)},
	} {
		from := dev.Stamp(s)
		s.Launch(c.kernel)
		at, err := dev.Times(from, dev.Stamp(s))
		require.NoError(t, err)
		require.NoError(t, s.Sync(), name)
		require.InDelta(t, ms(c.want), at[0], 1000, name)
	}
}

func TestMemoryOfTheCard(t *testing.T) {
	c := round
	c.Own = 24 << 20
	dev := card(c)
	b, err := dev.Alloc(1000 << 20)
	require.NoError(t, err)
	_, err = dev.Alloc(1)
	require.True(t, errors.Is(err, gpu.ErrOutOfMemory))
	m, err := dev.MemInfo()
	require.NoError(t, err)
	require.Equal(t, gpu.MemInfo{Total: 1 << 30, Own: 1 << 30}, m)
	require.NoError(t, b.Free())
	require.NoError(t, b.Free())
	h, err := dev.AllocHost(5 << 30)
	require.NoError(t, err)
	require.Nil(t, h.Host())
	require.NoError(t, h.Free())
	device, host := dev.Peak()
	require.EqualValues(t, 1<<30, device)
	require.EqualValues(t, 5<<30, host)
}

func TestCards(t *testing.T) {
	for _, name := range forecast.Cards() {
		c, err := forecast.CardOf(name)
		require.NoError(t, err)
		like, ok := forecast.CardCalled(c.Name)
		require.True(t, ok)
		require.Equal(t, c, like)
		for _, v := range []float64{c.Copy, c.Memory, c.Gemm, c.Attention, c.AttentionBackward} {
			require.Positive(t, v)
		}
	}
	_, err := forecast.CardOf("voodoo2")
	require.ErrorContains(t, err, "rtx4090")
	_, ok := forecast.CardCalled("NVIDIA GeForce RTX 4090 Laptop GPU")
	require.False(t, ok)
}
