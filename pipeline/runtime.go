package pipeline

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// runtime is what an Env keeps of its run. Its zero value works.
type runtime struct {
	mu      sync.Mutex
	shared  map[string]*sharedValue
	opened  []io.Closer     // in order of opening
	asked   context.Context // ends when the user asks the run to stop; nil until somebody looks
	stop    context.CancelFunc
	events  *Out[Event] // nil outside a run
	line    Line        // where it all goes, in a process of a plugin
	aside   []SetAside
	summary []SummaryEntry
}

// SetAside is an item that a run went on without.
type SetAside struct {
	Stage  string // id
	Item   string
	Reason string
}

// SummaryEntry is a line of a run's summary.
type SummaryEntry struct {
	Stage string // id
	Key   string
	Value any
}

// sharedValue is a value being opened, or open.
type sharedValue struct {
	ready chan struct{} // closed when open has returned
	v     any
	err   error
}

func (r *runtime) share(ctx context.Context, key string, open func(context.Context) (any, error)) (any, error) {
	for {
		r.mu.Lock()
		s, ok := r.shared[key]
		if !ok {
			s = &sharedValue{ready: make(chan struct{})}
			if r.shared == nil {
				r.shared = map[string]*sharedValue{}
			}
			r.shared[key] = s
			r.mu.Unlock()
			return r.open(ctx, key, s, open)
		}
		r.mu.Unlock()
		select {
		case <-s.ready:
			if s.err == nil {
				return s.v, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// open opens the value of key; those who wait for s try themselves if it fails.
func (r *runtime) open(ctx context.Context, key string, s *sharedValue, open func(context.Context) (any, error)) (any, error) {
	s.err = errors.New("opener panicked")
	defer func() {
		r.mu.Lock()
		if s.err != nil {
			delete(r.shared, key)
		} else if c, ok := s.v.(io.Closer); ok {
			r.opened = append(r.opened, c)
		}
		r.mu.Unlock()
		close(s.ready)
	}()
	s.v, s.err = open(ctx)
	return s.v, s.err
}

func (r *runtime) closeShared() error {
	r.mu.Lock()
	opened := r.opened
	r.opened, r.shared = nil, nil
	r.mu.Unlock()
	var errs []error
	for i := len(opened) - 1; i >= 0; i-- {
		errs = append(errs, opened[i].Close())
	}
	return errors.Join(errs...)
}

// stopping returns the context that ends when the user asks the run to stop.
func (r *runtime) stopping() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked == nil {
		r.asked, r.stop = context.WithCancel(context.Background())
	}
	return r.asked
}

// softStop asks the run to stop.
func (r *runtime) softStop() {
	r.stopping()
	r.stop()
}

func (r *runtime) setEvents(out *Out[Event]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = out
}

func (r *runtime) emit(ctx context.Context, ev Event) {
	r.mu.Lock()
	out, line := r.events, r.line
	r.mu.Unlock()
	if out == nil && line == nil {
		return
	}
	if ev.Time.IsZero() {
		ev.Time = time.Now()
	}
	if line != nil {
		line.Emit(ev.plain())
		return
	}
	// An event that cannot be sent is lost: none may fail a run.
	_ = out.Send(context.WithoutCancel(ctx), ev.plain())
}

func (r *runtime) setAside(item SetAside) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.line != nil {
		r.line.SetAside(item.Item, item.Reason)
		return
	}
	r.aside = append(r.aside, item)
}

func (r *runtime) summarise(e SummaryEntry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.line != nil {
		r.line.Summarise(e.Key, e.Value)
		return
	}
	r.summary = append(r.summary, e)
}

// detached says whether the run is in another process.
func (r *runtime) detached() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.line != nil
}
