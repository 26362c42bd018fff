//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"gorgonia.org/cu"

	"longship/gpu"
	"longship/gpu/cuda/shim"
)

// stamp is a gpu.Stamp: a CUDA event with timing.
type stamp struct {
	s *stream

	mu     sync.Mutex
	issued bool // handle is recorded
	given  bool // back, perhaps before it was issued
	handle cu.Event
	err    error // why it was not recorded
}

func (p *stamp) Of() string { return p.s.name }

// Stamp queues a point of time on a stream of this device.
func (d *Device) Stamp(s gpu.Stream) gpu.Stamp {
	p := &stamp{s: s.(*stream)}
	p.s.push(p)
	return p
}

func (p *stamp) issue(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.given {
		return
	}
	d := s.dev
	if p.err = s.failed(); p.err != nil {
		return
	}
	var err error
	if p.handle, err = d.takeTimer(); err == nil {
		err = p.handle.Record(s.handle)
	}
	if err != nil {
		s.Fail(fmt.Errorf("record a time: %w", explain(err)))
		p.err = s.failed()
		return
	}
	p.issued = true
}

// Times returns the card's time from base to each stamp. It asks the driver on
// the caller's thread: the device's may have a whole step to issue before.
func (d *Device) Times(base gpu.Stamp, stamps ...gpu.Stamp) (times []time.Duration, err error) {
	from := base.(*stamp)
	err = d.here(func() error {
		if _, ok, err := from.since(from); err != nil || !ok {
			return errors.Join(err, fmt.Errorf("time of stream %s asked for before it was reached", from.s.name))
		}
		times = make([]time.Duration, 0, len(stamps))
		for _, s := range stamps {
			t, ok, err := s.(*stamp).since(from)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			times = append(times, t)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return times, nil
}

// recorded returns the stamp's event, and whether it is recorded.
func (p *stamp) recorded() (cu.Event, bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handle, p.issued, p.err
}

// since returns the time from another stamp to this one, and whether both are reached.
func (p *stamp) since(from *stamp) (t time.Duration, ok bool, err error) {
	start, begun, err := from.recorded()
	end, ended, err2 := p.recorded()
	if err := errors.Join(err, err2); err != nil || !begun || !ended {
		return 0, false, err
	}
	ms, err := start.Elapsed(end)
	switch err := explain(err); {
	case errors.Is(err, shim.ErrNotReady):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("time of stream %s: %w", p.s.name, err)
	}
	return time.Duration(ms * float64(time.Millisecond)), true, nil
}

// Reuse makes the CUDA events of stamps others'.
func (d *Device) Reuse(stamps ...gpu.Stamp) {
	if len(stamps) > 0 {
		d.thread.push(entry{w: returned(stamps)})
	}
}

type returned []gpu.Stamp

func (r returned) issue(*stream) {
	for _, s := range r {
		p := s.(*stamp)
		p.mu.Lock()
		p.given = true
		if p.issued {
			p.issued = false
			p.s.dev.timers = append(p.s.dev.timers, p.handle)
		}
		p.mu.Unlock()
	}
}

// takeTimer returns a CUDA event with timing that nobody uses.
func (d *Device) takeTimer() (cu.Event, error) {
	if n := len(d.timers); n > 0 {
		e := d.timers[n-1]
		d.timers = d.timers[:n-1]
		return e, nil
	}
	e, err := cu.MakeEvent(cu.BlockingSyncEvent)
	if err == nil {
		d.allTimers = append(d.allTimers, e)
	}
	return e, err
}

var _ gpu.Clock = (*Device)(nil)
