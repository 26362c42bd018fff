package bench_test

import (
	"context"
	"math"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu/cpu"
	"longship/gpu/profile"
	"longship/internal/bench"
	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/quant"
	"longship/stages/prefetch"
	"longship/stages/train"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny is a bench of the tiny model on the CPU.
func tiny(t *testing.T) bench.Options {
	arch, err := bench.ArchOf("tiny")
	require.NoError(t, err)
	dev, err := cpu.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return bench.Options{
		Arch: arch, Device: dev, Batch: 1, Steps: 3, Warmup: 1, QType: "bf8", Outer: "bf16", Optimizer: "adamw8bit", Seed: 42,
		Prefetch: prefetch.Factory(), Train: train.Factory(), Log: hclog.NewNullLogger(),
	}
}

func parse(t *testing.T, texts ...string) (cases []bench.Case) {
	for _, text := range texts {
		c, err := bench.ParseCase(text)
		require.NoError(t, err)
		cases = append(cases, c)
	}
	return cases
}

func run(t *testing.T, o bench.Options, cases ...string) (results []bench.Result) {
	require.NoError(t, bench.Run(t.Context(), o, parse(t, cases...), func(r bench.Result) error {
		results = append(results, r)
		return nil
	}))
	require.Len(t, results, len(cases))
	return results
}

func TestCasesOfOneProcess(t *testing.T) {
	results := run(t, tiny(t), "32:4", "32:4:1", "48:8:0.5:200MiB")
	for _, r := range results {
		require.Positive(t, r.StepTime.Median)
		require.LessOrEqual(t, r.StepTime.Min, r.StepTime.Median)
		require.LessOrEqual(t, r.StepTime.Median, r.StepTime.Max)
		require.False(t, math.IsNaN(r.Loss))
	}
	require.Equal(t, results[0].Loss, results[1].Loss, "streamed as resident")
	require.NotEqual(t, results[0].Loss, results[2].Loss)
}

// Traced steps come behind the measured ones, of every case.
func TestTracedSteps(t *testing.T) {
	o := tiny(t)
	o.Trace = profile.NewTrace(o.Warmup+o.Steps, profile.TracedSteps)
	plain := run(t, tiny(t), "32:4:1")
	results := run(t, o, "32:4:1", "32:4:0")
	for _, r := range results {
		require.Equal(t, o.Warmup+o.Steps-profile.Warmup, r.Profile.Steps)
		require.Equal(t, profile.TracedSteps, r.Profile.Traced.Steps)
		require.Positive(t, r.Profile.Forward.Seconds)
		require.Less(t, r.Profile.Seconds, 2*r.StepTime.Max)
	}
	require.Nil(t, plain[0].Profile.Traced)
	require.Equal(t, plain[0].Profile.Launches, results[0].Profile.Launches)
	copied, _ := results[0].Profile.Sum("weights")
	require.Positive(t, copied)
	none, _ := results[1].Profile.Sum("weights")
	require.Zero(t, none, "resident weights are copied")
}

func TestArchitecturesHaveTheirParameters(t *testing.T) {
	for name, want := range map[string]int64{
		"flux2-dev": 32_223_281_152, "flux2-klein-4b": 3_875_544_576, "flux2-klein-9b": 9_078_581_248,
	} {
		arch, err := bench.ArchOf(name)
		require.NoError(t, err)
		require.Equal(t, want, arch.Config.Params(), name)
		_, err = flux2.ParseConfig(arch.Config.JSON())
		require.NoError(t, err, name)
	}
	_, err := bench.ArchOf("flux3")
	require.ErrorContains(t, err, "flux2-dev")
}

func TestParseCase(t *testing.T) {
	c, err := bench.ParseCase("512:16:0.71:23.5GiB")
	require.NoError(t, err)
	require.Equal(t, bench.Case{Pixels: 512, Rank: 16, Offload: "0.71", Cap: "23.5GiB"}, c)
	require.Equal(t, "512:16:0.71:23.5GiB", c.String())
	for text, want := range map[string]string{
		"512": "parts", "a:1": "pixels", "500:1": "pixels", "512:0": "rank", "512:1:2": "offload", "512:1:auto:much": "cap", "1:2:3:4:5": "parts",
	} {
		_, err := bench.ParseCase(text)
		require.ErrorContains(t, err, want, text)
	}
}

// The weights are N(0, 1/in), however they are stored, and the same for every reader.
func TestWeightsAreNormal(t *testing.T) {
	arch, err := bench.ArchOf("tiny")
	require.NoError(t, err)
	for _, qtype := range quant.QTypes {
		set, err := bench.Weights(arch.Config, qtype, "bf16", 1)
		require.NoError(t, err)
		u := set.Units[0]
		data, again := make([]byte, u.Bytes), make([]byte, u.Bytes)
		require.NoError(t, set.Read(t.Context(), u, data))
		require.NoError(t, set.Read(t.Context(), u, again))
		require.Equal(t, data, again)
		for _, e := range u.Entries {
			if len(e.Shape) == 1 {
				continue
			}
			n := e.Shape[0] * e.Shape[1]
			values := make([]float32, n)
			raw := data[e.Off:][:n*e.DType.Size()]
			switch qtype {
			case "bf8":
				dtype.E5M2ToF32(values, raw)
			case "float8":
				dtype.E4M3ToF32(values, raw)
			case "int8":
				for i, b := range raw {
					values[i] = float32(int8(b))
				}
			case "bf16":
				dtype.BF16ToF32(values, dtype.View[uint16](raw))
			case "float32":
				copy(values, dtype.View[float32](raw))
			}
			var sum, squares float64
			for i, v := range values {
				x := float64(v)
				if e.Scale >= 0 {
					x *= float64(dtype.View[float32](data[e.Scale:][:4*e.Shape[0]])[i/e.Shape[1]])
				}
				sum += x
				squares += x * x
			}
			std := 1 / math.Sqrt(float64(e.Shape[1]))
			require.InDelta(t, 0, sum/float64(n), 6*std/math.Sqrt(float64(n)), "%s %s: mean", qtype, e.Name)
			require.InEpsilon(t, std, math.Sqrt(squares/float64(n)), 0.03, "%s %s: deviation", qtype, e.Name)
		}
	}
}

func BenchmarkWeights(b *testing.B) {
	arch, err := bench.ArchOf("flux2-klein-4b")
	require.NoError(b, err)
	set, err := bench.Weights(arch.Config, "bf8", "bf16", 1)
	require.NoError(b, err)
	u := set.Units[0]
	dst := make([]byte, u.Bytes)
	b.SetBytes(u.Bytes)
	for b.Loop() {
		require.NoError(b, set.Read(context.Background(), u, dst))
	}
}
