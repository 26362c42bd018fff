package cpu

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"longship/gpu"
)

// stamp is a gpu.Stamp: the host's clock when the stream came to it.
type stamp struct {
	stream  string
	at      time.Time
	err     error // the stream's there
	reached atomic.Bool
}

func (p *stamp) Of() string { return p.stream }

// Stamp queues a point of time on a stream of this device.
func (d *Device) Stamp(s gpu.Stream) gpu.Stamp {
	st := s.(*stream)
	p := &stamp{stream: st.name}
	st.push(func() {
		p.at, p.err = time.Now(), st.failed()
		p.reached.Store(true)
	})
	return p
}

// Times returns the host's time from base to each stamp.
func (d *Device) Times(base gpu.Stamp, stamps ...gpu.Stamp) ([]time.Duration, error) {
	from := base.(*stamp)
	if !from.reached.Load() {
		return nil, fmt.Errorf("time of stream %s asked for before it was reached", from.stream)
	}
	times := make([]time.Duration, 0, len(stamps))
	for _, s := range stamps {
		p := s.(*stamp)
		if !p.reached.Load() {
			break
		}
		if err := errors.Join(from.err, p.err); err != nil {
			return nil, err
		}
		times = append(times, p.at.Sub(from.at))
	}
	return times, nil
}

// Reuse has nothing to do: the garbage collector takes stamps.
func (d *Device) Reuse(...gpu.Stamp) {}

var _ gpu.Clock = (*Device)(nil)
