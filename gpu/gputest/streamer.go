package gputest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/blake3"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/gpu/profile"
	"longship/gpu/tensor"
)

// Streamer tests that a memory.Streamer on the device gives the work of every
// block the weights of that block, at any share of streamed units and any depth
// of the ring: whatever the events let overlap, each unit is copied off the
// device by the compute stream as it was while the block was held.
func Streamer(t *testing.T, open func(t testing.TB) gpu.Device) {
	for _, c := range []struct {
		blocks []int // units of each block
		share  float64
		slots  int
	}{
		{[]int{1, 1, 1, 1}, 0, memory.MinSlots},
		{[]int{1, 1, 1, 1}, 1, memory.MinSlots},
		{[]int{2, 2, 1, 1, 1, 1, 1}, 1, memory.MinSlots},
		{[]int{2, 2, 1, 1, 1, 1, 1}, 0.71, memory.MinSlots},
		{[]int{2, 1, 1, 1, 1, 1}, 0.5, 5},
		{[]int{2, 2, 2, 2, 2}, 1, 4},
	} {
		t.Run(fmt.Sprintf("blocks %v, %g streamed, ring of %d", c.blocks, c.share, c.slots), func(t *testing.T) {
			dev := open(t)
			stream(t, dev, weights(c.blocks), c.share, c.slots)
			require.NoError(t, dev.Close())
		})
	}
}

// weights returns a set of blocks with the given numbers of units. Each byte of
// unit i is i, and those of the outer unit 255.
func weights(unitsOf []int) *memory.WeightSet {
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
			set.Units = append(set.Units, unit(fmt.Sprintf("block.%d.%d", b, k), b, int64(1+i%3)<<18, byte(i)))
		}
	}
	set.File = bytes.NewReader(file.Bytes())
	return set
}

// seen is a copy of a unit's weights, made while its block was held.
type seen struct {
	unit int
	at   gpu.Region
}

func stream(t *testing.T, dev gpu.Device, set *memory.WeightSet, share float64, slots int) {
	const steps = 6
	compute, err := dev.NewStream("compute")
	require.NoError(t, err)
	s, err := memory.NewStreamer(context.Background(), dev, set, memory.Options{Streamed: memory.Spread(set.Units, share), Slots: slots})
	require.NoError(t, err)
	s.Bind(compute)
	r := profile.New(dev, compute)
	s.Measure(r)
	var bytes int64
	for _, u := range set.Units {
		bytes += 2 * steps * u.Bytes
	}
	host, err := dev.AllocHost(bytes)
	require.NoError(t, err)

	var step []int
	for b := range set.Blocks() {
		step = append(step, b)
	}
	for b := set.Blocks() - 1; b >= 0; b-- {
		step = append(step, b)
	}
	var copied []seen
	var off int64
	s.Plan(step...)
	for range steps {
		s.Plan(step...)
		r.Forward()
		for i, b := range step {
			if i == set.Blocks() {
				r.Backward()
			}
			p, err := s.Acquire(b)
			require.NoError(t, err)
			for u, unit := range set.Units {
				if unit.Block != b {
					continue
				}
				at := gpu.Region{Buf: host, Off: off, Len: unit.Bytes}
				compute.Copy(at, p[unit.Name+".w"].Data.Region())
				copied = append(copied, seen{u, at})
				off += unit.Bytes
			}
			s.Release(b)
		}
		r.End()
	}
	require.NoError(t, compute.Sync())
	shares(t, r, s.Stats(), len(set.Units))
	for k, c := range copied {
		for i, v := range c.at.Bytes() {
			if v != byte(c.unit) {
				t.Fatalf("access %d: byte %d of unit %d is %d", k, i, c.unit, v)
			}
		}
	}
	require.NoError(t, errors.Join(compute.Close(), s.Close(), host.Free()))
}

// shares compares what was measured of the streamer with what it has counted.
func shares(t *testing.T, r *profile.Recorder, counted memory.Stats, units int) {
	require.NoError(t, r.Finish())
	s := r.Summary()
	if s == nil {
		return // the device takes no times
	}
	bytes, seconds := s.Sum("weights")
	require.LessOrEqual(t, bytes*float64(s.Steps), float64(counted.CopiedBytes)*1.0001)
	if counted.Copies > units { // more than once each: in every step
		require.Positive(t, bytes)
		require.Positive(t, seconds)
	}
	for _, h := range []profile.Half{s.Forward, s.Backward} {
		require.Positive(t, h.Seconds)
		require.True(t, h.Busy >= 0 && h.Busy <= 1, "compute is busy %v of a half", h.Busy)
		for _, c := range h.Copies {
			require.True(t, c.Busy > 0 && c.Busy <= 1.001, "copies are busy %v of a half", c.Busy)
			require.True(t, c.BusyBetween >= c.Busy && c.BusyBetween <= 1.001, "copies are busy %v between the turns", c.BusyBetween)
		}
	}
}
