package memory_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/blake3"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/memory"
	"longship/gpu/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// modelOf returns a set of blocks with the given numbers of units, each unit
// one byte tensor of its own size and content.
func modelOf(unitsOf ...int) *memory.WeightSet {
	var file bytes.Buffer
	set := &memory.WeightSet{QType: "bf8"}
	unit := func(name string, block int, size int64, fill byte) memory.Unit {
		b := bytes.Repeat([]byte{fill}, int(size))
		u := memory.Unit{Name: name, Block: block, Bytes: size, Off: int64(file.Len()), Sum: blake3.Sum256(b),
			Entries: []memory.Entry{{Name: name + ".w", DType: tensor.U8, Shape: []int{int(size)}, Scale: -1}}}
		file.Write(b)
		return u
	}
	set.Outer = unit("outer", -1, 256, 255)
	for b, n := range unitsOf {
		for k := range n {
			i := len(set.Units)
			set.Units = append(set.Units, unit(fmt.Sprintf("block.%d.%d", b, k), b, int64(256*(1+i%3)), byte(i)))
		}
	}
	set.File = bytes.NewReader(file.Bytes())
	return set
}

type expect struct {
	data tensor.Tensor
	fill byte
}

func (expect) Name() string { return "expect" }
func (e expect) Host(gpu.Workers) error {
	for i, b := range tensor.Host[byte](e.data) {
		if b != e.fill {
			return fmt.Errorf("byte %d is %d, want %d", i, b, e.fill)
		}
	}
	return nil
}

// walk visits the blocks and queues, for every unit, a kernel that checks its content.
func walk(t require.TestingT, s *memory.Streamer, compute gpu.Stream, set *memory.WeightSet, blocks ...int) {
	for _, b := range blocks {
		p, err := s.Acquire(b)
		require.NoError(t, err)
		for i, u := range set.Units {
			if u.Block == b {
				w, ok := p[u.Name+".w"]
				require.True(t, ok, "%s is missing", u.Name)
				compute.Launch(expect{w.Data, byte(i)})
			}
		}
		s.Release(b)
	}
}

func forwardBackward(n int) (order []int) {
	for b := range n {
		order = append(order, b)
	}
	for b := n - 1; b >= 0; b-- {
		order = append(order, b)
	}
	return order
}

func TestStreamerGivesEveryUnitItsBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doubles := rapid.IntRange(0, 3).Draw(t, "doubles")
		singles := rapid.IntRange(1, 6).Draw(t, "singles")
		share := rapid.Float64Range(0, 1).Draw(t, "share")
		slots := rapid.IntRange(memory.MinSlots, 6).Draw(t, "slots")
		ahead := rapid.IntRange(1, 3).Draw(t, "steps announced ahead")
		var shape []int
		for range doubles {
			shape = append(shape, 2)
		}
		for range singles {
			shape = append(shape, 1)
		}
		set := modelOf(shape...)
		dev, err := cpu.New()
		require.NoError(t, err)
		defer dev.Close()
		compute, err := dev.NewStream("compute")
		require.NoError(t, err)
		defer compute.Close()
		s, err := memory.NewStreamer(context.Background(), dev, set, memory.Options{Streamed: memory.Spread(set.Units, share), Slots: slots})
		require.NoError(t, err)
		defer s.Close()
		s.Bind(compute)

		step := forwardBackward(len(shape))
		for range ahead {
			s.Plan(step...)
		}
		for range 4 {
			walk(t, s, compute, set, step...)
			s.Plan(step...)
		}
		require.NoError(t, compute.Sync())
	})
}

func TestStreamerCopiesTwicePerStepLessTheTurns(t *testing.T) {
	const n, slots = 10, 3
	shape := make([]int, n)
	for i := range shape {
		shape[i] = 1
	}
	set := modelOf(shape...)
	dev, err := cpu.New()
	require.NoError(t, err)
	defer dev.Close()
	compute, err := dev.NewStream("compute")
	require.NoError(t, err)
	defer compute.Close()
	all := memory.Spread(set.Units, 1)
	s, err := memory.NewStreamer(context.Background(), dev, set, memory.Options{Streamed: all, Slots: slots})
	require.NoError(t, err)
	defer s.Close()
	s.Bind(compute)

	step := forwardBackward(n)
	const steps = 5
	s.Plan(step...)
	for i := range steps {
		if i+1 < steps {
			s.Plan(step...)
		}
		walk(t, s, compute, set, step...)
	}
	require.NoError(t, compute.Sync())
	// Each turn keeps the whole ring: the first forward copies n, every later
	// half n - slots.
	require.Equal(t, n+(2*steps-1)*(n-slots), s.Stats().Copies)
}

func TestStreamerRefusesABlockOutOfThePlan(t *testing.T) {
	set := modelOf(1, 1, 1)
	dev, err := cpu.New()
	require.NoError(t, err)
	defer dev.Close()
	compute, err := dev.NewStream("compute")
	require.NoError(t, err)
	defer compute.Close()
	s, err := memory.NewStreamer(context.Background(), dev, set, memory.Options{Streamed: memory.Spread(set.Units, 1)})
	require.NoError(t, err)
	defer s.Close()
	s.Bind(compute)
	s.Plan(0, 1, 2)
	_, err = s.Acquire(1)
	require.ErrorContains(t, err, "the plan says block 0")
}

func TestDamagedUnitIsNamed(t *testing.T) {
	set := modelOf(1, 2)
	set.Units[1].Sum[0] ^= 1
	dev, err := cpu.New()
	require.NoError(t, err)
	defer dev.Close()
	for _, share := range []float64{0, 1} {
		_, err = memory.NewStreamer(context.Background(), dev, set, memory.Options{Streamed: memory.Spread(set.Units, share)})
		require.ErrorIs(t, err, memory.ErrDamaged)
		require.ErrorContains(t, err, "block.1.0")
	}
}

func TestSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 64).Draw(t, "n")
		share := rapid.Float64Range(0, 1).Draw(t, "share")
		units := make([]memory.Unit, n)
		var largest float64
		for i := range units {
			units[i].Bytes = int64(rapid.IntRange(1, 8).Draw(t, "size")) << 20
			largest = max(largest, float64(units[i].Bytes))
		}
		streamed := memory.Spread(units, share)
		part, all := memory.Streamed(units, streamed)
		require.InDelta(t, share*float64(all), float64(part), largest, "share of bytes")
		// Even: no prefix strays from the share by more than the largest unit.
		var seen, taken float64
		for i, u := range units {
			seen += float64(u.Bytes)
			if streamed[i] {
				taken += float64(u.Bytes)
			}
			require.InDelta(t, share*seen, taken, largest, "first %d units", i+1)
		}
	})
	units := make([]memory.Unit, 64)
	for i := range units {
		units[i].Bytes = 490733568
	}
	for _, c := range []struct {
		share float64
		want  int
	}{{0, 0}, {1, 64}, {0.71, 45}, {0.5, 32}} {
		n := 0
		for _, s := range memory.Spread(units, c.share) {
			if s {
				n++
			}
		}
		require.Equal(t, c.want, n, "share %v", c.share)
	}
}
