package prefetch

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/memory"
	"longship/pipeline"
)

// What is streamed is planned into the budget; what cannot fit is refused with
// what can.
func TestResidency(t *testing.T) {
	const mib = 1 << 20
	set := &memory.WeightSet{Outer: memory.Unit{Bytes: 2 * mib}}
	for range 10 {
		set.Units = append(set.Units, memory.Unit{Bytes: 10 * mib})
	}
	const taken, beside = 20 * mib, 7 * mib
	for name, c := range map[string]struct {
		offload  string
		total    int64
		streamed int64 // units
		fault    string
	}{
		"auto, all fits":      {"auto", 122 * mib, 0, ""},
		"auto, one byte less": {"auto", 122*mib - 1, 4, ""},
		"auto, the least":     {"auto", 52 * mib, 10, ""},
		"auto, too little":    {"auto", 52*mib - 1, 0, "the smallest that can work is 59MiB"},
		"forced":              {"0.5", 122 * mib, 5, ""},
		"forced, too little":  {"0.5", 60*mib - 1, 0, "offload 0.5 does not fit: at least 109MiB are needed for it; the nearest share that fits is 1"},
		"forced, nearest":     {"0.5", 82 * mib, 0, "the nearest share that fits is 0.7"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stage{cfg: Config{Offload: c.offload, Ring: 3}}
			streamed, err := s.residency(set, gpu.NewBudget(c.total).Beside(beside), taken)
			if c.fault != "" {
				var head *pipeline.HeadError
				require.ErrorAs(t, err, &head)
				require.Equal(t, "vram", head.Path)
				require.ErrorContains(t, err, c.fault)
				return
			}
			require.NoError(t, err)
			part, _ := memory.Streamed(set.Units, streamed)
			require.Equal(t, c.streamed, part/(10*mib), fmt.Sprint(streamed))
		})
	}
}

// Room is exact: with that many bytes taken all weights are resident, with one
// more they are not.
func TestRoomBesideAllWeights(t *testing.T) {
	set := &memory.WeightSet{Outer: memory.Unit{Bytes: 256}, Units: []memory.Unit{{Bytes: 1024}, {Bytes: 512}}}
	src := &source{set: set, room: 10_000}
	room, limited := src.Room(300)
	require.True(t, limited)
	s := &stage{cfg: Config{Offload: "auto", Ring: 3}}
	for more, resident := range []bool{true, false} {
		streamed, err := s.residency(set, gpu.NewBudget(10_000), 300+room+int64(more))
		require.Equal(t, resident, err == nil && !slices.Contains(streamed, true))
	}
	src.room = math.MaxInt64
	_, limited = src.Room(300)
	require.False(t, limited)
}

// Memory of the host is looked at before any is page-locked.
func TestHostMemoryIsNamed(t *testing.T) {
	require.NoError(t, holds(30<<30, 30<<30))
	err := holds(30<<30, 16<<30)
	require.ErrorIs(t, err, gpu.ErrOutOfMemory)
	require.ErrorContains(t, err, "need 30720MiB of host memory and 16384MiB are available")
}
