// Package profile measures where the time of training steps goes: how busy the
// compute stream and the copy streams are in the forward and the backward half
// of a step, how much is copied how fast, and, in steps that are traced, what
// every kernel takes.
//
// A Recorder has the device stamp the ends of halves, copies and waits
// (gpu.Clock). The stamps of a step are read when the step is known to be done,
// so that nothing waits for them. All methods of a nil Recorder, Lane and Track
// do nothing but what they were given to queue: who is measured need not ask.
//
// A Recorder belongs to the goroutine that queues the work; a Trace may be used
// from any.
package profile

import (
	"time"

	"longship/gpu"
)

// Warmup is the number of first steps that a Summary leaves out where there are
// more: they load kernels and fill the ring.
const Warmup = 2

// Recorder measures the steps of one compute stream.
type Recorder struct {
	clock   gpu.Clock
	compute gpu.Stream
	lanes   []*Lane

	cur    *step   // being queued
	queued []*step // not known to be done, in order
	read   *step   // done and not counted yet: copies that overlap it may be unread

	base   gpu.Stamp // of a moment that is not long ago
	baseAt moment

	trace  *Trace // nil while steps are not traced
	anchor anchor

	warm, all totals // steps from Warmup on, and those before
	traced    tracedTotals
	memory    memory
	err       error // why measuring ended
}

// moment is time on the device since its first stamp that was read.
type moment = time.Duration

// step is what was stamped of a step of the compute stream.
type step struct {
	halves   []half
	waits    []span
	end      gpu.Stamp
	ended    moment
	launches int64

	trace   *Trace // where it is traced
	kernels []span
	blocks  []span
}

// half is the forward or backward pass of a micro-batch, to the start of the
// next half or the end of the step.
type half struct {
	backward bool
	from     gpu.Stamp
	begin    moment
}

// span is something that a stream does.
type span struct {
	name       string
	bytes      int64
	from, to   gpu.Stamp
	begin, end moment
}

// New returns a recorder of the steps of a compute stream of the device; nil
// where the device takes no times.
func New(dev gpu.Device, compute gpu.Stream) *Recorder {
	clock, ok := dev.(gpu.Clock)
	if !ok {
		return nil
	}
	return &Recorder{clock: clock, compute: compute}
}

func (r *Recorder) stamp() gpu.Stamp { return r.clock.Stamp(r.compute) }

// Forward says that what is queued from now on is a forward half, the first of
// a step where the step before has ended.
func (r *Recorder) Forward() {
	if r == nil || r.err != nil {
		return
	}
	if r.cur == nil {
		r.cur = &step{launches: -r.launches(), trace: r.trace}
	}
	r.cur.halves = append(r.cur.halves, half{from: r.stamp()})
}

// Backward says that what is queued from now on is the backward half.
func (r *Recorder) Backward() {
	if r.measuring() {
		r.cur.halves = append(r.cur.halves, half{backward: true, from: r.stamp()})
	}
}

// End says that all work of a step is queued.
func (r *Recorder) End() {
	if !r.measuring() {
		return
	}
	s := r.cur
	r.cur = nil
	s.end = r.stamp()
	s.launches += r.launches()
	r.queued = append(r.queued, s)
}

// measuring says whether a step is being queued and measured.
func (r *Recorder) measuring() bool { return r != nil && r.cur != nil && r.err == nil }

// tracing says whether the step that is being queued is traced.
func (r *Recorder) tracing() bool { return r.measuring() && r.cur.trace != nil }

// Wait queues, with the function, what the compute stream waits for.
func (r *Recorder) Wait(what string, queue func()) {
	if !r.measuring() {
		queue()
		return
	}
	from := r.stamp()
	queue()
	r.cur.waits = append(r.cur.waits, span{name: what, from: from, to: r.stamp()})
}

// launches returns the launches of the compute stream so far.
func (r *Recorder) launches() int64 {
	if c, ok := r.compute.(gpu.Counter); ok {
		return c.Launches()
	}
	return 0
}

// Lane is a copy stream that is measured.
type Lane struct {
	r      *Recorder
	name   string
	stream gpu.Stream
	spans  []span // not read, in order
	read   []span // with their times, not counted
}

// Lane measures the copies of a stream of the same device under a name.
func (r *Recorder) Lane(name string, s gpu.Stream) *Lane {
	if r == nil {
		return nil
	}
	l := &Lane{r: r, name: name, stream: s}
	r.lanes = append(r.lanes, l)
	return l
}

// Copy queues, with the function, copies of so many bytes and nothing else. They
// are measured while a step is queued that was not read.
func (l *Lane) Copy(what string, bytes int64, queue func()) {
	if l == nil || l.r.err != nil || l.r.cur == nil && len(l.r.queued) == 0 {
		queue()
		return
	}
	from := l.r.clock.Stamp(l.stream)
	queue()
	l.spans = append(l.spans, span{name: what, bytes: bytes, from: from, to: l.r.clock.Stamp(l.stream)})
}
