package profile

import (
	"fmt"
	"time"

	"longship/gpu"
)

// Collect reads the times of the oldest step that was not read. All work of it
// must be known to be done. What goes wrong ends the measuring and nothing else.
func (r *Recorder) Collect() {
	if r == nil || r.err != nil || len(r.queued) == 0 {
		return
	}
	r.err = r.collect()
}

// Finish reads what is left, with all streams synced, and returns why the
// measuring ended early, if it did.
func (r *Recorder) Finish() error {
	if r == nil {
		return nil
	}
	for r.err == nil && len(r.queued) > 0 {
		r.err = r.collect()
	}
	if r.err == nil && r.read != nil {
		r.count(r.read)
		r.read = nil
	}
	return r.err
}

func (r *Recorder) collect() error {
	s := r.queued[0]
	r.queued = r.queued[1:]
	first := r.base == nil
	if first {
		r.base = s.halves[0].from
	}
	done, err := r.times(s)
	if err != nil {
		return err
	}
	for _, l := range r.lanes {
		if err := r.timesOf(l); err != nil {
			return err
		}
	}
	if err := r.anchor.read(r); err != nil {
		return err
	}
	// The end of this step is the next base; the one before may be used again.
	if !first {
		done = append(done, r.base)
	}
	r.clock.Reuse(done...)
	r.base, r.baseAt = s.end, s.ended
	if r.read != nil {
		r.count(r.read)
	}
	r.read = s
	return nil
}

// times reads the stamps of a step, which is done, and returns all but its end.
func (r *Recorder) times(s *step) ([]gpu.Stamp, error) {
	var stamps []gpu.Stamp
	var at []*moment
	add := func(p gpu.Stamp, m *moment) { stamps, at = append(stamps, p), append(at, m) }
	for i := range s.halves {
		add(s.halves[i].from, &s.halves[i].begin)
	}
	for _, list := range [][]span{s.waits, s.kernels, s.blocks} {
		for i := range list {
			add(list[i].from, &list[i].begin)
			add(list[i].to, &list[i].end)
		}
	}
	add(s.end, &s.ended)
	got, err := r.clock.Times(r.base, stamps...)
	if err != nil {
		return nil, err
	}
	if len(got) < len(stamps) {
		return nil, fmt.Errorf("profile: %d of %d times of a step that is done are missing", len(stamps)-len(got), len(stamps))
	}
	for i, t := range got {
		*at[i] = r.baseAt + t
	}
	return stamps[:len(stamps)-1], nil
}

// timesOf reads the stamps of the copies that have ended.
func (r *Recorder) timesOf(l *Lane) error {
	stamps := make([]gpu.Stamp, 0, 2*len(l.spans))
	for _, p := range l.spans {
		stamps = append(stamps, p.from, p.to)
	}
	got, err := r.clock.Times(r.base, stamps...)
	if err != nil {
		return err
	}
	n := len(got) / 2
	for i, p := range l.spans[:n] {
		p.begin, p.end = r.baseAt+got[2*i], r.baseAt+got[2*i+1]
		l.read = append(l.read, p)
	}
	l.spans = append(l.spans[:0], l.spans[n:]...)
	r.clock.Reuse(stamps[:2*n]...)
	return nil
}

// count adds a step to the totals, and to the trace where it is traced.
func (r *Recorder) count(s *step) {
	t := &r.warm
	if r.all.steps < Warmup {
		t = &r.all
	}
	if s.trace != nil {
		r.emit(s)
		r.traced.add(s)
	} else {
		t.add(s, r.lanes)
	}
	for _, l := range r.lanes {
		kept := l.read[:0]
		for _, p := range l.read {
			if p.end > s.ended {
				kept = append(kept, p)
			}
		}
		l.read = kept
	}
}

// overlap returns how much of a span lies between two moments.
func (p *span) overlap(from, to moment) time.Duration {
	return max(0, min(p.end, to)-max(p.begin, from))
}
