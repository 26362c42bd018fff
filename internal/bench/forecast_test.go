package bench_test

import (
	"os"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"longship/internal/bench"
	"longship/internal/forecast"
	"longship/pipeline"
	"longship/stages/prefetch"
	"longship/stages/train"
)

func foreseen(t *testing.T, arch, text, card string) (*bench.Forecast, error) {
	a, err := bench.ArchOf(arch)
	require.NoError(t, err)
	c, err := forecast.CardOf(card)
	require.NoError(t, err)
	o := bench.Options{Arch: a, Batch: 1, QType: "bf8", Outer: "bf16", Optimizer: "adamw8bit", Seed: 42,
		Prefetch: prefetch.Factory(), Train: train.Factory(), Log: hclog.NewNullLogger()}
	return o.Forecast(t.Context(), parse(t, text)[0], c)
}

// A forecast is of the run's own schedule: more memory or a faster card is never
// slower, and what is streamed is copied twice a step less the turns.
func TestForecast(t *testing.T) {
	all, err := foreseen(t, "tiny", "64:4:0", "rtx4090")
	require.NoError(t, err)
	streamed, err := foreseen(t, "tiny", "64:4:1", "rtx4090")
	require.NoError(t, err)
	fast, err := foreseen(t, "tiny", "64:4:1", "h200")
	require.NoError(t, err)
	require.LessOrEqual(t, all.Profile.Seconds, streamed.Profile.Seconds)
	require.Less(t, fast.Profile.Seconds, streamed.Profile.Seconds)
	none, _ := all.Profile.Sum("weights")
	copied, seconds := streamed.Profile.Sum("weights")
	require.Zero(t, none)
	require.InEpsilon(t, copied/31.5e9, seconds, 1e-3)
	require.Greater(t, streamed.Pinned, all.Pinned)
	var sum int64
	for _, part := range bench.Parts {
		require.Contains(t, streamed.Parts, part)
		sum += streamed.Parts[part]
	}
	require.InDelta(t, streamed.Device, sum, 64<<20, "the parts are the whole, but for rounding to allocations")
	require.Zero(t, streamed.Parts[bench.PartResident])
	require.Zero(t, all.Parts[bench.PartRing])
	require.Equal(t, streamed.Profile.Launches, fast.Profile.Launches)
}

// What a cap cannot hold is refused with the smallest that can, which works.
func TestForecastNamesTheSmallestCap(t *testing.T) {
	_, err := foreseen(t, "tiny", "64:4:auto:769MiB", "rtx4090")
	require.ErrorContains(t, err, "vram")
	var head *pipeline.HeadError
	require.ErrorAs(t, err, &head)
	least, ok := bench.SmallestCap(err)
	require.True(t, ok, "%v", err)
	f, err := foreseen(t, "tiny", "64:4:auto:"+least, "rtx4090")
	require.NoError(t, err)
	require.Positive(t, f.Profile.Seconds)
}

// The limits that the design works out by hand for FLUX.2-dev on an H200.
func TestForecastOfALargeModel(t *testing.T) {
	if os.Getenv("LONGSHIP_LONG") == "" {
		t.Skip("takes 10 s; LONGSHIP_LONG=1 runs it")
	}
	for text, want := range map[string][2]float64{
		"512:16:0.71:23.5GiB":  {0.75, 0.81},
		"512:16:auto:23.5GiB":  {0.44, 0.56},
		"512:16:auto:11.5GiB":  {0.90, 0.94},
		"1024:16:auto:23.5GiB": {1.40, 1.68},
	} {
		f, err := foreseen(t, "flux2-dev", text, "h200")
		require.NoError(t, err)
		require.GreaterOrEqual(t, f.Profile.Seconds, want[0], text)
		require.LessOrEqual(t, f.Profile.Seconds, want[1], text)
		require.LessOrEqual(t, f.Device, int64(23.5*(1<<30)), text)
	}
}

// A card whose rates are known is foreseen before it is measured. What is
// measured here is a forecast too, and so the same.
func TestResultsCarryTheForecast(t *testing.T) {
	o := tiny(t)
	card, err := forecast.CardOf("h200")
	require.NoError(t, err)
	r := run(t, o, "64:4:1")[0]
	require.Nil(t, r.Forecast, "of the CPU nothing is known")
	o.Device = forecast.New(card)
	r = run(t, o, "64:4:1")[0]
	require.NotNil(t, r.Forecast)
	require.Positive(t, r.Profile.Seconds)
	require.InEpsilon(t, r.Profile.Seconds, r.Forecast.Profile.Seconds, 1e-6)
}
