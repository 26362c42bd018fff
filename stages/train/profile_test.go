package train

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/profile"
	"longship/internal/tracefile"
	"longship/pipeline"
)

// traced is the stage in a run that is traced.
func traced(trace *profile.Trace) func() pipeline.Factory {
	return func() pipeline.Factory {
		f := Factory()
		made := f.New
		f.New = func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			if err := tracefile.Use(context.Background(), set.Env, trace); err != nil {
				return nil, err
			}
			return made(set, cfg)
		}
		return f
	}
}

// A run whose weights are streamed tells how busy its streams are, traces the
// steps it was asked to, and computes the same bits as one that is not measured.
func TestProfile(t *testing.T) {
	const micros, steps, behind = 2, 6, 2
	plain := trial{config: full}.run(t)
	require.NoError(t, plain.Err)

	trace := profile.NewTrace(behind, profile.TracedSteps)
	src := newSource(t)
	src.from = streamed(t, randomModel(src.model))
	c := trial{config: full, source: src, factory: traced(trace)}.run(t)
	require.NoError(t, c.Err)
	require.Equal(t, plain.last().tensors, c.last().tensors)

	var s profile.Summary
	var marked []bool
	for _, e := range c.Events {
		switch e.Event {
		case "step":
			marked = append(marked, e.Data["traced"].(bool))
		case "profile":
			b, err := json.Marshal(e.Data)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(b, &s))
		}
	}
	require.Equal(t, []bool{false, false, true, true, false, false}, marked)
	require.Equal(t, steps-profile.TracedSteps-profile.Warmup, s.Steps)
	require.Greater(t, s.Launches, 100.)
	require.Positive(t, s.Memory.HostPeak)
	for _, h := range []profile.Half{s.Forward, s.Backward} {
		require.Positive(t, h.Seconds)
		require.True(t, h.Waiting > 0 && h.Waiting < h.Seconds)
		require.InDelta(t, 1-h.Waiting/h.Seconds, h.Busy, 1e-9)
	}
	// Four units go through a ring of three: at least the ones that are not in it
	// at a turn are copied, at most all, in each half of each micro-batch.
	bytes0, seconds := s.Sum("weights")
	var all, unit int64
	for _, u := range src.from.set.Units {
		all, unit = all+u.Bytes, max(unit, u.Bytes)
	}
	require.Positive(t, seconds)
	require.GreaterOrEqual(t, bytes0, float64(2*micros)*float64(all-3*unit))
	require.LessOrEqual(t, bytes0, float64(2*micros)*float64(all)+1)
	require.NotNil(t, s.Traced)
	require.Equal(t, profile.TracedSteps, s.Traced.Steps)
	sum := s.Traced.Waiting
	families := map[string]float64{}
	for _, k := range s.Traced.Kernels {
		sum += k.Seconds
		families[k.Family] = k.Calls
	}
	require.LessOrEqual(t, sum, s.Traced.Seconds)
	for _, f := range profile.Families {
		if f != "expand" { // the CPU's products read stored weights
			require.Positive(t, families[f], f)
		}
	}
	for _, key := range []string{"forward half", "backward half", "forward, copies of weights", "kernels launched", "traced", "host memory"} {
		require.Contains(t, c.Summary(), key)
	}

	var b bytes.Buffer
	require.NoError(t, trace.Write(&b))
	var file struct {
		TraceEvents []struct{ Name, Cat, Ph string }
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &file))
	count := map[string]int{}
	for _, e := range file.TraceEvents {
		if e.Ph == "X" {
			count[e.Cat+" "+e.Name]++
		}
	}
	require.Equal(t, micros*profile.TracedSteps, count["pass forward"])
	require.Equal(t, micros*profile.TracedSteps, count["pass backward"])
	require.Equal(t, micros*profile.TracedSteps, count["host queue a step"])
	require.Equal(t, 2*micros*profile.TracedSteps, count["block block 0"])
	require.Positive(t, count["attention attention_backward"])
	require.Positive(t, count["optimizer adamw8"])
	require.Positive(t, count["copy single_blocks.1"])
	require.Positive(t, count["wait weights of block 1"])
}
