//go:build cuda

package cuda

import (
	"runtime"
	"sync"
	"time"

	"gorgonia.org/cu"
)

const (
	// batch is how many entries wake the thread by themselves.
	batch = 32
	// linger is how long an entry waits at most for others, or for a flush.
	linger = 100 * time.Microsecond
)

// work is one entry of the queue. issue hands it to the driver, on the thread.
type work interface{ issue(s *stream) }

// entry is work of a stream, or of the device where the stream is nil.
type entry struct {
	s *stream
	w work
}

// thread is the goroutine that calls the driver, and the queue before it. The
// order of the queue is the order of the calls, over all streams: a Wait that
// was queued after the Record it names is issued after it.
type thread struct {
	mu     sync.Mutex
	filled sync.Cond // the thread has something to do
	queue  []entry
	due    bool // what is queued is to be taken now
	closed bool
	timer  *time.Timer
	ended  chan struct{}
}

// startThread starts the goroutine; setup runs first on it and its error ends it.
func startThread(setup func() error) (*thread, error) {
	t := &thread{ended: make(chan struct{})}
	t.filled.L = &t.mu
	t.timer = time.AfterFunc(time.Hour, t.flush)
	ready := make(chan error, 1)
	go t.run(setup, ready)
	if err := <-ready; err != nil {
		<-t.ended
		return nil, err
	}
	return t, nil
}

func (t *thread) run(setup func() error, ready chan<- error) {
	defer close(t.ended)
	defer t.timer.Stop()
	runtime.LockOSThread() // to the goroutine's end: the OS thread ends with it
	err := setup()
	ready <- err
	if err != nil {
		return
	}
	var spare []entry
	for {
		q := t.take(spare)
		if q == nil {
			return
		}
		for i, e := range q {
			e.issue()
			q[i] = entry{}
		}
		spare = q[:0]
	}
}

// take waits until the queue is due and takes all of it; nil after close.
func (t *thread) take(spare []entry) []entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !t.due && !t.closed {
		t.filled.Wait()
	}
	if len(t.queue) == 0 && t.closed {
		return nil
	}
	q := t.queue
	t.queue, t.due = spare, false
	return q
}

// push queues an entry.
func (t *thread) push(e entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		panic("cuda: work queued after the device was closed")
	}
	t.queue = append(t.queue, e)
	switch len(t.queue) {
	case 1:
		t.timer.Reset(linger)
	case batch:
		t.wake()
	}
}

// flush has what is queued taken now.
func (t *thread) flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) > 0 {
		t.wake()
	}
}

func (t *thread) wake() {
	if !t.due {
		t.due = true
		t.filled.Signal()
	}
}

// call runs f on the thread, after all that was queued before, and waits for it.
func (t *thread) call(f func() error) error {
	c := &call{f: f, done: make(chan error, 1)}
	t.push(entry{w: c})
	t.flush()
	return <-c.done
}

// here calls the driver on the caller's thread, beside what is queued.
func (d *Device) here(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.ctx); err != nil {
		return explain(err)
	}
	return f()
}

// close ends the thread after what is queued; teardown runs last on it.
func (t *thread) close(teardown func() error) error {
	err := t.call(teardown)
	t.mu.Lock()
	t.closed = true
	t.filled.Signal()
	t.mu.Unlock()
	<-t.ended
	return err
}

// call is a function of the device's, run in queue order.
type call struct {
	f    func() error
	done chan error
}

func (c *call) issue(*stream) { c.done <- c.f() }

// issue hands the entry to the driver, or has it held back where its stream is.
func (e entry) issue() {
	if e.s == nil {
		e.w.issue(nil)
		return
	}
	e.s.issue(e.w)
}
