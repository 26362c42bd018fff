package cpu

import (
	"fmt"
	"sync"
	"sync/atomic"

	"longship/gpu"
)

// stream is a gpu.Stream: a goroutine that works off a queue.
type stream struct {
	dev     *Device
	name    string
	workers Workers
	ended   chan struct{} // closed when the goroutine has returned

	launches atomic.Int64

	mu     sync.Mutex
	filled sync.Cond // the queue has something, or the stream is closed
	queue  []func()
	closed bool
	err    error
}

func newStream(d *Device, name string) *stream {
	s := &stream{dev: d, name: name, ended: make(chan struct{})}
	s.filled.L = &s.mu
	go s.run()
	return s
}

func (s *stream) run() {
	defer close(s.ended)
	for {
		work := s.take()
		if work == nil {
			return
		}
		for _, f := range work {
			f()
		}
	}
}

// take waits for work and takes all of it; nil once the stream is closed and empty.
func (s *stream) take() []func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && !s.closed {
		s.filled.Wait()
	}
	work := s.queue
	s.queue = nil
	return work
}

// push queues f. Work queued after Close is a programmer's error and is refused.
func (s *stream) push(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		panic(fmt.Sprintf("cpu: work queued on stream %q after Close", s.name))
	}
	s.queue = append(s.queue, f)
	s.filled.Signal()
}

func (s *stream) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Fail makes err the stream's error unless it has one already.
func (s *stream) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && err != nil {
		s.err = fmt.Errorf("stream %s: %w", s.name, err)
	}
}

// do queues work that is dropped once the stream has failed.
func (s *stream) do(what string, f func() error) {
	s.push(func() {
		if s.failed() != nil {
			return
		}
		if err := f(); err != nil {
			s.Fail(fmt.Errorf("%s: %w", what, err))
		}
	})
}

func (s *stream) Name() string { return s.name }

// Launch checks the kernel's arguments, where it can, and queues it.
func (s *stream) Launch(k gpu.Kernel) {
	if c, ok := k.(gpu.Checker); ok {
		if err := c.Check(); err != nil {
			s.Fail(fmt.Errorf("%s: %w", k.Name(), err))
		}
	}
	s.launches.Add(1)
	s.do(k.Name(), func() error { return k.Host(s.workers) })
}

// Launches returns the number of kernels queued so far.
func (s *stream) Launches() int64 { return s.launches.Load() }

// Copy queues dst <- src, on several cores where it is large.
func (s *stream) Copy(dst, src gpu.Region) {
	if dst.Len != src.Len {
		s.Fail(fmt.Errorf("copy: %d bytes to a region of %d", src.Len, dst.Len))
	}
	s.do("copy", func() error {
		to, from := dst.Bytes(), src.Bytes()
		s.workers.For(len(to), 4<<20, func(lo, hi int) { copy(to[lo:hi], from[lo:hi]) })
		return nil
	})
}

func (s *stream) Do(fn func() error) { s.do("host function", fn) }

func (s *stream) Record() gpu.Event {
	e := &event{reached: make(chan struct{})}
	s.push(func() {
		e.err = s.failed()
		close(e.reached)
	})
	return e
}

// Wait makes later work wait for e. If e's stream had failed by then, so does this one.
func (s *stream) Wait(e gpu.Event) {
	ev := e.(*event)
	s.push(func() {
		<-ev.reached
		s.Fail(ev.err)
	})
}

func (s *stream) Sync() error {
	done := make(chan struct{})
	s.push(func() { close(done) })
	<-done
	return s.failed()
}

// Close waits for the queue, ends the goroutine and returns the sticky error.
func (s *stream) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.filled.Signal()
	s.mu.Unlock()
	<-s.ended
	if first {
		s.dev.streamClosed()
	}
	return s.failed()
}

var (
	_ gpu.Stream  = (*stream)(nil)
	_ gpu.Counter = (*stream)(nil)
)
