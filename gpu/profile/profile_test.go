package profile_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/profile"
)

const ms = time.Millisecond

// script is a device whose streams reach stamps at the times that a test says.
type script struct {
	*gpu.Discard
	now    map[string]time.Duration // of each stream
	limit  time.Duration            // stamps behind it are not reached
	given  map[*mark]bool
	t      *testing.T
	stamps int
}

type mark struct {
	stream string
	at     time.Duration
}

func (m *mark) Of() string { return m.stream }

func (d *script) Stamp(s gpu.Stream) gpu.Stamp {
	d.stamps++
	return &mark{s.Name(), d.now[s.Name()]}
}

func (d *script) Times(base gpu.Stamp, stamps ...gpu.Stamp) (out []time.Duration, err error) {
	require.False(d.t, d.given[base.(*mark)], "the base was given back")
	for _, s := range stamps {
		m := s.(*mark)
		require.False(d.t, d.given[m], "a stamp that was given back is read")
		if m.at > d.limit {
			break
		}
		out = append(out, m.at-base.(*mark).at)
	}
	return out, nil
}

func (d *script) Reuse(stamps ...gpu.Stamp) {
	for _, s := range stamps {
		require.False(d.t, d.given[s.(*mark)], "a stamp is given back twice")
		d.given[s.(*mark)] = true
	}
}

// Steps of 100 ms: forward to 40, waiting 30..36; backward waits 50..70. Copies
// run 10..30 and 32..52 and 60..90, the second over the change of halves, and
// one that starts before the end of the step and ends in the next.
func TestSharesOfAStep(t *testing.T) {
	d := &script{Discard: gpu.NewDiscard(), now: map[string]time.Duration{}, given: map[*mark]bool{}, t: t}
	compute, _ := d.NewStream("compute")
	weights, _ := d.NewStream("weights")
	r := profile.New(d, compute)
	lane := r.Lane("weights", weights)
	const steps = 6
	for k := range steps {
		at := time.Duration(k) * 100 * ms
		on := func(stream string, t time.Duration) { d.now[stream] = at + t }
		copied := func(from, to time.Duration, bytes int64) {
			on("weights", from)
			lane.Copy("unit", bytes, func() { on("weights", to) })
		}
		waited := func(from, to time.Duration) {
			on("compute", from)
			r.Wait("weights", func() { on("compute", to) })
		}
		on("compute", 0)
		r.Forward()
		copied(10*ms, 30*ms, 2000)
		waited(30*ms, 36*ms)
		copied(32*ms, 52*ms, 2000)
		on("compute", 40*ms)
		r.Backward()
		waited(50*ms, 70*ms)
		copied(60*ms, 90*ms, 3000)
		copied(95*ms, 105*ms, 1000)
		on("compute", 100*ms)
		r.End()
		r.Memory(int64(1000+10*k), int64(500-k))
		if k > 0 { // read a step late
			d.limit = at
			r.Collect()
		}
	}
	d.limit = time.Hour
	require.NoError(t, r.Finish())
	s := r.Summary()
	require.Equal(t, steps-profile.Warmup, s.Steps)
	require.InDelta(t, 0.1, s.Seconds, 1e-9)
	f, b := s.Forward, s.Backward
	require.InDelta(t, 0.040, f.Seconds, 1e-9)
	require.InDelta(t, 0.006, f.Waiting, 1e-9)
	require.InDelta(t, 34./40, f.Busy, 1e-9)
	require.InDelta(t, 40./60, b.Busy, 1e-9)
	// Forward: 0..5 of the copy before, 10..30, 32..40.
	require.Len(t, f.Copies, 1)
	require.InDelta(t, 33./40, f.Copies[0].Busy, 1e-9)
	require.InDelta(t, 500+2000+800, f.Copies[0].Bytes, 1e-6)
	require.InDelta(t, 1e5, f.Copies[0].Rate, 1e-3)
	require.Zero(t, f.Copies[0].First)
	// Backward: 40..52, 60..90, 95..100.
	require.InDelta(t, 47./60, b.Copies[0].Busy, 1e-9)
	require.InDelta(t, 1200+3000+500, b.Copies[0].Bytes, 1e-6)
	bytes, seconds := s.Sum("weights")
	require.InDelta(t, 8000, bytes, 1e-6)
	require.InDelta(t, 0.080, seconds, 1e-9)
	require.Equal(t, profile.Memory{Peak: 1050, Steady: 1050, Drift: 30. / 1050, HostPeak: 500}, s.Memory)
	require.Nil(t, s.Traced)
}

// What is in the ring around the turns is told apart from what is between.
func TestTurns(t *testing.T) {
	d := &script{Discard: gpu.NewDiscard(), now: map[string]time.Duration{}, given: map[*mark]bool{}, t: t, limit: time.Hour}
	compute, _ := d.NewStream("compute")
	weights, _ := d.NewStream("weights")
	r := profile.New(d, compute)
	lane := r.Lane("weights", weights)
	other := r.Lane("noise", compute)
	lane.Copy("before any step", 5, func() {})
	for k := range 3 {
		on := func(stream string, t time.Duration) { d.now[stream] = time.Duration(k)*time.Second + t }
		on("compute", 0)
		r.Forward()
		on("weights", 10*ms)
		lane.Copy("a", 100, func() { on("weights", 70*ms) })
		on("compute", 100*ms)
		r.Backward()
		on("weights", 120*ms)
		lane.Copy("b", 100, func() { on("weights", 180*ms) })
		on("compute", 220*ms)
		r.End()
		r.Collect()
	}
	require.NoError(t, r.Finish())
	s := r.Summary()
	require.Equal(t, 1, s.Steps)
	require.NotNil(t, other)
	f, b := s.Forward.Copies[0], s.Backward.Copies[0]
	require.InDeltaSlice(t, []float64{.010, .030, .6, 1}, []float64{f.First, f.Last, f.Busy, f.BusyBetween}, 1e-9)
	require.InDeltaSlice(t, []float64{.020, .040, .5, 1}, []float64{b.First, b.Last, b.Busy, b.BusyBetween}, 1e-9)
	require.Len(t, s.Forward.Copies, 1, "a stream that copied nothing is left out")
}

// Without a clock, or without a recorder, what is to be queued is queued.
func TestNothingToMeasure(t *testing.T) {
	plain := struct{ gpu.Device }{gpu.NewDiscard()}
	stream, _ := plain.NewStream("compute")
	r := profile.New(plain, stream)
	require.Nil(t, r)
	queued := 0
	r.Forward()
	r.Wait("", func() { queued++ })
	r.Lane("", stream).Copy("", 1, func() { queued++ })
	r.Block("")()
	r.Backward()
	r.End()
	r.Collect()
	r.Memory(1, 1)
	require.NoError(t, r.Finish())
	require.Nil(t, r.Summary())
	require.Equal(t, 2, queued)
}

func TestFamilies(t *testing.T) {
	for kernel, want := range map[string]string{
		"gemm": "gemm", "attention_backward": "attention", "rms_norm_rope": "norm", "expand": "expand", "adamw8": "optimizer",
		"clip_norm": "optimizer", "ema": "optimizer", "swiglu": "other", "copy": profile.Copying,
	} {
		require.Equal(t, want, profile.Family(kernel), kernel)
	}
}

type pause struct {
	name string
	time time.Duration
}

func (p pause) Name() string           { return p.name }
func (p pause) Host(gpu.Workers) error { time.Sleep(p.time); return nil }

// traceFile is a trace as a viewer reads it.
type traceFile struct {
	TraceEvents []struct {
		Name, Cat, Ph string
		Pid, Tid      int
		Ts, Dur       *float64
		Args          map[string]any
	}
}

// A traced step's file has every track, named; its slices are in order and lie
// beside or inside each other; and what is traced is not in the averages.
func TestTrace(t *testing.T) {
	dev, err := cpu.New()
	require.NoError(t, err)
	compute, err := dev.NewStream("compute")
	require.NoError(t, err)
	weights, err := dev.NewStream("weights")
	require.NoError(t, err)
	r := profile.New(dev, compute)
	lane := r.Lane("weights", weights)
	trace := profile.NewTrace(2, 1)
	trace.Run("run")
	host := trace.Track("host", "queue")
	for k := range 4 {
		if trace.Covers(k, 4) {
			require.NoError(t, r.Trace(trace))
		} else {
			r.Untrace()
		}
		end := host.Begin("step", "queue")
		st := r.Stream()
		r.Forward()
		lane.Copy("unit", 1<<20, func() { weights.Launch(pause{"fetch", 3 * ms}) })
		ready := weights.Record()
		block := r.Block("block 0")
		r.Wait("weights", func() { compute.Wait(ready) })
		st.Launch(pause{"gemm", 2 * ms})
		r.Backward()
		st.Launch(pause{"adamw", ms})
		block()
		r.End()
		end()
		require.NoError(t, compute.Sync())
		r.Collect()
	}
	require.NoError(t, r.Finish())
	s := r.Summary()
	require.Equal(t, 1, s.Steps)
	require.EqualValues(t, 2, s.Launches)
	require.Greater(t, s.Forward.Waiting, 0.002)
	require.Greater(t, s.Backward.Busy, 0.99)
	require.Equal(t, 1, s.Traced.Steps)
	require.Len(t, s.Traced.Kernels, 2)
	require.Equal(t, "gemm", s.Traced.Kernels[0].Family)
	require.GreaterOrEqual(t, s.Traced.Kernels[0].Seconds, 0.002)
	require.Equal(t, "optimizer", s.Traced.Kernels[1].Family)

	var b bytes.Buffer
	require.NoError(t, trace.Write(&b))
	var file traceFile
	require.NoError(t, json.Unmarshal(b.Bytes(), &file), b.String())
	names := map[[2]int]string{}
	type at struct{ begin, end float64 }
	last := map[[2]int][]at{} // open slices of a track
	seen := map[string][]string{}
	for _, e := range file.TraceEvents {
		track := [2]int{e.Pid, e.Tid}
		switch e.Ph {
		case "M":
			if e.Name != "thread_sort_index" {
				names[track] = e.Args["name"].(string)
			}
		case "X":
			require.NotEmpty(t, names[track], "a track without a name")
			require.NotNil(t, e.Ts)
			require.NotNil(t, e.Dur)
			s := at{*e.Ts, *e.Ts + *e.Dur}
			require.LessOrEqual(t, s.begin, s.end)
			stack := last[track]
			for len(stack) > 0 && stack[len(stack)-1].end <= s.begin+1e-3 {
				stack = stack[:len(stack)-1]
			}
			if n := len(stack); n > 0 {
				require.LessOrEqual(t, s.end, stack[n-1].end+1e-3, "slices of a track cross")
				require.GreaterOrEqual(t, s.begin, stack[n-1].begin)
			}
			last[track] = append(stack, s)
			seen[names[track]] = append(seen[names[track]], e.Name)
		default:
			t.Errorf("event of phase %q", e.Ph)
		}
	}
	require.Equal(t, map[string][]string{
		"queue": {"step", "step", "step", "step"}, "compute stream": {"weights", "gemm", "adamw"},
		"passes": {"step", "forward", "backward"}, "blocks": {"block 0"}, "weights": {"unit"},
	}, seen)
	require.Equal(t, "run: device", names[[2]int{2, 0}])

	// The host's clock and the device's are one here.
	var fetched float64
	var begins []float64
	for _, e := range file.TraceEvents {
		switch {
		case e.Name == "unit":
			fetched = *e.Ts
		case e.Name == "step" && e.Cat == "queue":
			begins = append(begins, *e.Ts)
		case e.Name == "step":
			require.GreaterOrEqual(t, e.Args["gemm ms"], 2.)
			require.Greater(t, e.Args["waiting ms"], 2.)
			require.Equal(t, 2., e.Args["launches"])
		}
	}
	require.Greater(t, fetched, begins[2]-200)
	require.Less(t, fetched, begins[3])
	require.NoError(t, compute.Close())
	require.NoError(t, weights.Close())
	require.NoError(t, dev.Close())
}

func TestShortRunsAreTracedAtTheirEnd(t *testing.T) {
	trace := profile.NewTrace(3, 2)
	covered := func(steps int) (out []int) {
		for k := range steps {
			if trace.Covers(k, steps) {
				out = append(out, k)
			}
		}
		return out
	}
	require.Equal(t, []int{3, 4}, covered(10))
	require.Equal(t, []int{1, 2}, covered(3))
	require.Equal(t, []int{0}, covered(1))
	require.False(t, (*profile.Trace)(nil).Covers(0, 1))
}
