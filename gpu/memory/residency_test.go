package memory_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"longship/gpu"
	"longship/gpu/memory"
)

func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 64).Draw(t, "n")
		slots := rapid.IntRange(memory.MinSlots, 6).Draw(t, "slots")
		outer := memory.Unit{Bytes: int64(rapid.IntRange(0, 8).Draw(t, "outer")) << 20}
		units := make([]memory.Unit, n)
		for i := range units {
			units[i].Bytes = int64(rapid.IntRange(1, 8).Draw(t, "size")) << 20
		}
		room := int64(rapid.IntRange(0, 600).Draw(t, "room")) << 20
		streamed, err := memory.Fit(outer, units, slots, room)
		share := func(k int) int64 {
			return memory.Footprint(outer, units, memory.Spread(units, float64(k)/float64(n)), slots)
		}
		if err != nil {
			none := (*memory.NoRoomError)(nil)
			require.True(t, errors.As(err, &none))
			require.ErrorIs(t, err, gpu.ErrOutOfMemory)
			for k := range n + 1 {
				require.Greater(t, share(k), room)
			}
			_, err = memory.Fit(outer, units, slots, none.Least)
			require.NoError(t, err, "the least that it names works")
			_, err = memory.Fit(outer, units, slots, none.Least-1)
			require.Error(t, err, "and nothing below it")
			return
		}
		require.LessOrEqual(t, memory.Footprint(outer, units, streamed, slots), room)
		part, _ := memory.Streamed(units, streamed)
		for k := range n + 1 {
			less := memory.Spread(units, float64(k)/float64(n))
			if p, _ := memory.Streamed(units, less); p < part {
				require.Greater(t, share(k), room, "share %d/%d streams less and fits", k, n)
			}
		}
	})
}

// The units of FLUX.2-dev in BF8.
func TestFitOfALargeModel(t *testing.T) {
	const unit = 490733568
	units := make([]memory.Unit, 64)
	for i := range units {
		units[i].Bytes = unit
	}
	for _, c := range []struct {
		units    int64 // room
		streamed int
	}{{64, 0}, {63, 4}, {40, 27}, {3, 64}} {
		streamed, err := memory.Fit(memory.Unit{}, units, 3, c.units*unit)
		require.NoError(t, err)
		part, _ := memory.Streamed(units, streamed)
		require.EqualValues(t, c.streamed, part/unit, "room for %d", c.units)
	}
	near, err := memory.Nearest(memory.Unit{}, units, 3, 40*unit, 0.2)
	require.NoError(t, err)
	require.Equal(t, 27.0/64, near)
	_, err = memory.Fit(memory.Unit{}, units, 3, 3*unit-1)
	require.ErrorContains(t, err, "at least 1404 MiB")
}
