package train

import (
	"context"

	"longship/gpu"
	"longship/gpu/profile"
	"longship/internal/hostmem"
	"longship/internal/tracefile"
	"longship/pipeline"
)

// measured is a source of weights whose copies can be measured.
type measured interface{ Measure(*profile.Recorder) }

// profiles says whether the steps of a run are measured: on a card always, on the
// CPU where it is asked for.
func (s *stage) profiles(dev gpu.Device, trace *profile.Trace) bool {
	_, card := dev.(gpu.MemReporter)
	return card || trace != nil || s.set.Env.Profile
}

// begin takes in what is known of tracing before the first step.
func (l *loop) begin(ctx context.Context) (err error) {
	l.begun = l.step
	l.trace, err = tracefile.Of(ctx, l.set.Env)
	return err
}

// traced says whether a step, which completes so many, is in the trace.
func (l *loop) traced(step int) bool {
	return l.trace.Covers(step-1-l.begun, l.cfg.Steps-l.begun)
}

// tap begins or ends tracing before the next step.
func (l *loop) tap(ctx context.Context) error {
	if l.trace == nil || l.t.profile == nil {
		return nil
	}
	now := l.traced(l.step + 1)
	if now && !l.tapped {
		if err := l.settle(ctx, 0); err != nil {
			return err
		}
		if err := l.t.profile.Trace(l.trace); err != nil {
			return err
		}
	}
	if !now {
		l.t.profile.Untrace()
	}
	l.tapped = now
	l.t.ctx.Stream = l.t.profile.Stream()
	return nil
}

// host begins what the host does for a step, for the trace; the function that it
// returns ends it.
func (l *loop) host(what string) (end func()) {
	if !l.tapped {
		return func() {}
	}
	return l.trace.Track("host", l.set.ID).Begin(what, "host")
}

// measure takes in the oldest step, which is done.
func (l *loop) measure() {
	p := l.t.profile
	if p == nil {
		return
	}
	p.Collect()
	var device int64
	if card, ok := l.source.Device().(gpu.MemReporter); ok {
		if m, err := card.MemInfo(); err == nil {
			device = m.Own
		}
	}
	p.Memory(device, hostmem.Anonymous())
}

// tellProfile adds what was measured to the summary, and emits it.
func (l *loop) tellProfile(ctx context.Context) {
	p := l.t.profile
	if err := p.Finish(); err != nil {
		l.set.Log.Warn("the streams were not measured to the end", "error", err)
	}
	s := p.Summary()
	for _, line := range s.Lines() {
		l.set.Summarise(line.Key, line.Text)
	}
	if s == nil {
		return
	}
	data, err := s.Fields()
	if err != nil {
		l.set.Log.Warn("what was measured of the streams is not told", "error", err)
		return
	}
	l.set.Env.Emit(ctx, pipeline.Event{Event: "profile", Stage: l.set.ID, Data: data})
}
