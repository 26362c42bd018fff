package profile

import (
	"time"

	"longship/gpu"
)

// Trace has the steps from the next one on traced, until Untrace. No step may be
// queued or unread: it waits for the compute stream, to learn how its clock
// stands to the host's.
func (r *Recorder) Trace(t *Trace) error {
	if r == nil || t == nil {
		return nil
	}
	before := time.Now()
	at := r.stamp()
	if err := r.compute.Sync(); err != nil {
		return err
	}
	r.trace = t
	r.anchor = anchor{stamp: at, host: before.Add(time.Since(before) / 2)}
	return nil
}

// Untrace ends what Trace has begun.
func (r *Recorder) Untrace() {
	if r != nil {
		r.trace = nil
	}
}

// Stream returns the compute stream for the kernels of the next step: one that
// has each stamped, where steps are traced.
func (r *Recorder) Stream() gpu.Stream {
	if r.trace == nil {
		return r.compute
	}
	return &tap{Stream: r.compute, r: r}
}

// Block says that what is queued until the function that it returns is called
// is work of a block.
func (r *Recorder) Block(name string) (end func()) {
	if !r.tracing() {
		return func() {}
	}
	from := r.stamp()
	return func() {
		if r.tracing() {
			r.cur.blocks = append(r.cur.blocks, span{name: name, from: from, to: r.stamp()})
		}
	}
}

// tap is the compute stream with a stamp before and behind each kernel.
type tap struct {
	gpu.Stream
	r *Recorder
}

func (t *tap) Launch(k gpu.Kernel) {
	t.stamped(k.Name(), 0, func() { t.Stream.Launch(k) })
}

func (t *tap) Copy(dst, src gpu.Region) {
	t.stamped(Copying, dst.Len, func() { t.Stream.Copy(dst, src) })
}

func (t *tap) stamped(name string, bytes int64, queue func()) {
	if !t.r.tracing() {
		queue()
		return
	}
	from := t.r.stamp()
	queue()
	t.r.cur.kernels = append(t.r.cur.kernels, span{name: name, bytes: bytes, from: from, to: t.r.stamp()})
}

// anchor is a moment by both clocks.
type anchor struct {
	stamp gpu.Stamp // not read yet, else nil
	at    moment
	host  time.Time
}

// read learns the device's time of the anchor, once.
func (a *anchor) read(r *Recorder) error {
	if a.stamp == nil {
		return nil
	}
	got, err := r.clock.Times(r.base, a.stamp)
	if err != nil || len(got) == 0 {
		return err
	}
	a.at = r.baseAt + got[0]
	r.clock.Reuse(a.stamp)
	a.stamp = nil
	return nil
}

// time returns when a moment was by the host's clock.
func (a *anchor) time(m moment) time.Time { return a.host.Add(m - a.at) }

// emit writes a step into its trace.
func (r *Recorder) emit(s *step) {
	const device = "device"
	t := s.trace
	compute := t.Track(device, "compute stream")
	put := func(k *Track, p *span, category string) {
		var args map[string]any
		if p.bytes > 0 {
			args = map[string]any{"bytes": p.bytes}
			if d := p.end - p.begin; d > 0 {
				args["GB/s"] = float64(p.bytes) / float64(d)
			}
		}
		k.Slice(p.name, category, r.anchor.time(p.begin), r.anchor.time(p.end), args)
	}
	for i := range s.kernels {
		put(compute, &s.kernels[i], Family(s.kernels[i].name))
	}
	for i := range s.waits {
		put(compute, &s.waits[i], "wait")
	}
	passes := t.Track(device, "passes")
	passes.Slice("step", "step", r.anchor.time(s.halves[0].begin), r.anchor.time(s.ended), s.families())
	for i, h := range s.halves {
		p := span{name: "forward", begin: h.begin, end: s.ended}
		if h.backward {
			p.name = "backward"
		}
		if i+1 < len(s.halves) {
			p.end = s.halves[i+1].begin
		}
		put(passes, &p, "pass")
	}
	blocks := t.Track(device, "blocks")
	for i := range s.blocks {
		put(blocks, &s.blocks[i], "block")
	}
	for _, l := range r.lanes {
		copies := t.Track(device, l.name)
		for i := range l.read {
			if p := &l.read[i]; p.begin < s.ended {
				put(copies, p, Copying)
			}
		}
	}
}

// families returns the step's time by family, in milliseconds.
func (s *step) families() map[string]any {
	var t tracedTotals
	t.add(s)
	out := map[string]any{"waiting ms": milliseconds(t.waiting), "launches": s.launches}
	for name, f := range t.families {
		out[name+" ms"] = milliseconds(f.time)
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
