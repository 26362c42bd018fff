//go:build cuda

package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"gorgonia.org/cu"

	"longship/gpu"
	"longship/gpu/cuda/shim"
)

// event is a point in a stream.
//
// It has a CUDA event only between the call that records it and the moment when
// somebody sees that it was reached; the CUDA event is used again then. So a
// run makes as many of them as are ever under way at once.
type event struct {
	s       *stream
	reached chan struct{} // closed when it is known to be reached

	mu      sync.Mutex
	issued  bool      // handle is recorded
	watched bool      // a waiter is, or will be, waiting for handle
	handle  cu.Event  // valid from issued to reached
	err     error     // the stream's error at this point
	parked  []*stream // streams that wait for it and it was not issued yet
}

func newEvent(s *stream) *event { return &event{s: s, reached: make(chan struct{})} }

// recording is an event as work of its stream, waiting as work of another.
type (
	recording event
	waiting   event
)

func (r *recording) issue(s *stream) {
	e := (*event)(r)
	d := s.dev
	err := s.failed()
	var handle cu.Event
	if err == nil {
		if handle, err = d.takeEvent(); err == nil {
			err = handle.Record(s.handle)
		}
		if err != nil {
			s.Fail(fmt.Errorf("record an event: %w", explain(err)))
			err = s.failed()
		}
	}
	e.mu.Lock()
	parked := e.parked
	e.parked = nil
	if err != nil {
		e.end(err)
	} else {
		e.issued, e.handle = true, handle
		s.open = append(s.open, e)
		if e.watched {
			d.waiters.submit(e)
		}
	}
	e.mu.Unlock()
	for _, p := range parked {
		(*waiting)(e).issue(p)
		p.resume()
	}
}

func (w *waiting) issue(s *stream) {
	e := (*event)(w)
	if s.failed() != nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.isReached():
		s.Fail(e.err)
	case !e.issued:
		e.parked = append(e.parked, s)
		s.parked = true
	default:
		if err := s.handle.Wait(e.handle, 0); err != nil {
			s.Fail(fmt.Errorf("wait for an event of stream %s: %w", e.s.name, explain(err)))
		}
	}
}

// end makes the event reached, with the error of its stream there. The caller holds mu.
func (e *event) end(err error) {
	e.err = err
	close(e.reached)
}

// settle asks the driver for an event that nobody waits for, on the device's
// thread, and says whether its CUDA event is free again.
func (e *event) settle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isReached() {
		return true
	}
	if e.watched {
		return false
	}
	err := e.handle.Query()
	if errors.Is(explain(err), shim.ErrNotReady) {
		return false
	}
	e.end(e.s.dev.outcome(e.s, err))
	return true
}

// isReached says whether the event is known to be reached.
func (e *event) isReached() bool {
	select {
	case <-e.reached:
		return true
	default:
		return false
	}
}

// Done says whether the event is reached, as far as its waiter has seen.
func (e *event) Done() bool {
	if e.isReached() {
		return true
	}
	e.watch()
	return false
}

// watch has a waiter wait for the event, once.
func (e *event) watch() {
	e.s.dev.thread.flush()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watched || e.isReached() {
		return
	}
	e.watched = true
	if e.issued {
		e.s.dev.waiters.submit(e)
	}
}

// Await waits for the event and returns the error its stream had there.
func (e *event) Await(ctx context.Context) error {
	e.watch()
	select {
	case <-e.reached:
		return e.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wait is Await without an end.
func (e *event) wait() error {
	e.watch()
	<-e.reached
	return e.err
}

var _ gpu.Event = (*event)(nil)
