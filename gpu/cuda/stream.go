//go:build cuda

package cuda

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"gorgonia.org/cu"

	"longship/gpu"
)

// stream is a gpu.Stream over a CUDA stream.
type stream struct {
	dev  *Device
	name string

	launches atomic.Int64

	mu           sync.Mutex
	err          error // sticky
	closed       bool
	scratchSpace workspace // taken at the first need

	// Of the device's thread alone.
	handle cu.Stream
	open   []*event // recorded and not known to be reached, in order
	held   []work   // queued behind a host function that has not returned
	parked bool     // held takes what comes
}

// NewStream makes a queue. It does not wait for, or hold up, any other stream.
func (d *Device) NewStream(name string) (gpu.Stream, error) {
	s := &stream{dev: d, name: name}
	err := d.thread.call(func() (err error) {
		if err := d.failed(); err != nil {
			return err
		}
		if s.handle, err = cu.MakeStream(cu.NonBlocking); err != nil {
			return fmt.Errorf("make stream %s: %w", name, explain(err))
		}
		d.streams[s] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *stream) Name() string { return s.name }

// failed returns the stream's error, or the device's.
func (s *stream) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		if err := s.dev.failed(); err != nil {
			s.err = fmt.Errorf("stream %s: %w", s.name, err)
		}
	}
	return s.err
}

// Fail makes err the stream's error unless it has one already.
func (s *stream) Fail(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = fmt.Errorf("stream %s: %w", s.name, err)
	}
}

// push queues work.
func (s *stream) push(w work) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		panic(fmt.Sprintf("cuda: work queued on stream %q after Close", s.name))
	}
	s.dev.thread.push(entry{s: s, w: w})
}

// issue hands work to the driver, unless the stream is parked.
func (s *stream) issue(w work) {
	if s.parked {
		s.held = append(s.held, w)
		return
	}
	w.issue(s)
}

// resume issues what was held back, until something parks the stream again.
func (s *stream) resume() {
	s.parked = false
	for len(s.held) > 0 && !s.parked {
		w := s.held[0]
		s.held[0] = nil
		s.held = s.held[1:]
		w.issue(s)
	}
}

// Launch checks the kernel's arguments and queues it.
func (s *stream) Launch(k gpu.Kernel) {
	if s.failed() != nil {
		return
	}
	if c, ok := k.(gpu.Checker); ok {
		if err := c.Check(); err != nil {
			s.Fail(fmt.Errorf("%s: %w", k.Name(), err))
			return
		}
	}
	launch, ok := launchers[k.Name()]
	if !ok {
		s.Fail(fmt.Errorf("%s: the CUDA device has no kernel of that name", k.Name()))
		return
	}
	if err := launch(s, k); err != nil {
		s.Fail(fmt.Errorf("%s: %w", k.Name(), err))
	}
}

// Launches returns the number of kernels and of cublasLt's calls queued so far.
func (s *stream) Launches() int64 { return s.launches.Load() }

// Copy queues dst <- src, each on the device or in page-locked memory.
func (s *stream) Copy(dst, src gpu.Region) {
	if dst.Len != src.Len {
		s.Fail(fmt.Errorf("copy: %d bytes to a region of %d", src.Len, dst.Len))
		return
	}
	to, errTo := s.dev.place(dst)
	from, errFrom := s.dev.place(src)
	if err := errors.Join(errTo, errFrom); err != nil {
		s.Fail(fmt.Errorf("copy: %w", err))
		return
	}
	if dst.Len > 0 {
		s.push(&transfer{dst: to, src: from, bytes: dst.Len})
	}
}

// Do queues a host function. Work queued later is issued when it has returned.
func (s *stream) Do(fn func() error) { s.push(&hostFunc{fn: fn}) }

// Record returns an event that is reached when all work queued so far is done.
func (s *stream) Record() gpu.Event { return s.record() }

func (s *stream) record() *event {
	e := newEvent(s)
	s.push((*recording)(e))
	return e
}

// Wait makes later work wait for e.
func (s *stream) Wait(e gpu.Event) {
	if ev := e.(*event); ev.s != s {
		s.push((*waiting)(ev))
	}
}

// Sync waits for the queue.
func (s *stream) Sync() error {
	// The event's error is the stream's.
	_ = s.record().Await(context.Background())
	return s.failed()
}

// Close waits for the queue, frees the stream and returns its sticky error.
func (s *stream) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return s.failed()
	}
	err := s.Sync()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	freed := s.dev.thread.call(func() error {
		s.dev.reclaim(s)
		delete(s.dev.streams, s)
		s.dev.giveWorkspace(s.scratchSpace)
		return explain(s.handle.Destroy())
	})
	if err == nil && freed != nil {
		err = fmt.Errorf("stream %s: close: %w", s.name, freed)
	}
	return err
}

var (
	_ gpu.Stream  = (*stream)(nil)
	_ gpu.Counter = (*stream)(nil)
)
