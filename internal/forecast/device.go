// Package forecast says how long a training step will take on a card, and what
// it takes of its memory, before there is a run, a card or a weight: the stages
// themselves run on a Device that does no work and has a clock of its own, which
// every kernel and copy moves on by what the card needs for it. So the ring, the
// turns and the order of everything are the run's own, and what is refused is
// what the run refuses.
//
// The host takes no time, and a copy has the link alone: a forecast is of a
// device that is never left waiting by the host.
package forecast

import (
	"context"
	"fmt"
	"sync"
	"time"

	"longship/gpu"
)

// Device is a card that does no work and keeps time. Memory of the host is
// there, zeroed, in pieces of up to 1 GiB; memory of the card is counted. Safe
// for concurrent use; a stream is one goroutine's at a time.
type Device struct {
	card Card

	mu    sync.Mutex
	taken int64 // of the card
	most  int64
	host  int64 // page-locked
	locks int64 // most page-locked
}

// New returns a device like a card.
func New(c Card) *Device { return &Device{card: c} }

// Card returns what the device stands for.
func (d *Device) Card() Card { return d.card }

// Peak returns the most bytes that were taken of the card at once, its own
// included, and the most page-locked bytes of the host.
func (d *Device) Peak() (device, host int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most + d.card.Own, d.locks
}

// Info says what the card is.
func (d *Device) Info() gpu.Info {
	return gpu.Info{Kind: "cuda", Name: d.card.Name, TotalBytes: d.card.Bytes}
}

// MemInfo returns the card's memory as if no other process had of it.
func (d *Device) MemInfo() (gpu.MemInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	used := d.card.Own + d.taken
	return gpu.MemInfo{Total: d.card.Bytes, Free: d.card.Bytes - used, Own: used}, nil
}

// Alloc counts memory of the card, and fails where there is no more.
func (d *Device) Alloc(bytes int64) (gpu.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if free := d.card.Bytes - d.card.Own - d.taken; bytes > free {
		return nil, fmt.Errorf("take %d bytes of the card, %d are free: %w", bytes, free, gpu.ErrOutOfMemory)
	}
	d.taken += bytes
	d.most = max(d.most, d.taken)
	return &buffer{dev: d, size: bytes}, nil
}

// hostLimit is the most that a buffer of the host really holds.
const hostLimit = 1 << 30

// AllocHost counts page-locked memory.
func (d *Device) AllocHost(bytes int64) (gpu.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.host += bytes
	d.locks = max(d.locks, d.host)
	b := &buffer{dev: d, size: bytes, pinned: true}
	if bytes <= hostLimit {
		b.host = make([]byte, bytes)
	}
	return b, nil
}

type buffer struct {
	dev    *Device
	size   int64
	pinned bool
	host   []byte
}

func (b *buffer) Size() int64  { return b.size }
func (b *buffer) Host() []byte { return b.host }

func (b *buffer) Free() error {
	b.dev.mu.Lock()
	defer b.dev.mu.Unlock()
	if b.pinned {
		b.dev.host -= b.size
	} else {
		b.dev.taken -= b.size
	}
	b.size, b.host = 0, nil
	return nil
}

// NewStream returns a stream that stands at the start of time.
func (d *Device) NewStream(name string) (gpu.Stream, error) {
	return &stream{dev: d, name: name}, nil
}

// Close does nothing.
func (d *Device) Close() error { return nil }

// Stamp is the time of a stream now.
func (d *Device) Stamp(s gpu.Stream) gpu.Stamp {
	at := s.(*stream)
	return stamp{at.name, at.now}
}

// Times subtracts.
func (d *Device) Times(base gpu.Stamp, stamps ...gpu.Stamp) ([]time.Duration, error) {
	out := make([]time.Duration, len(stamps))
	for i, s := range stamps {
		out[i] = s.(stamp).at - base.(stamp).at
	}
	return out, nil
}

// Reuse does nothing.
func (d *Device) Reuse(...gpu.Stamp) {}

type stamp struct {
	of string
	at time.Duration
}

func (s stamp) Of() string { return s.of }

// stream is a clock that its work moves on.
type stream struct {
	dev      *Device
	name     string
	now      time.Duration
	launches int64
	err      error
}

func (s *stream) Name() string    { return s.name }
func (s *stream) Launches() int64 { return s.launches }

func (s *stream) Launch(k gpu.Kernel) {
	if c, ok := k.(gpu.Checker); ok {
		if err := c.Check(); err != nil {
			s.Fail(fmt.Errorf("stream %s: %s: %w", s.name, k.Name(), err))
		}
	}
	s.launches++
	s.now += s.dev.card.takes(k)
}

// Copy takes the link's time between host and card, and twice the memory's
// within the card.
func (s *stream) Copy(dst, src gpu.Region) {
	if dst.Len != src.Len {
		s.Fail(fmt.Errorf("stream %s: copy: %d bytes to a region of %d", s.name, src.Len, dst.Len))
	}
	rate := s.dev.card.Memory / 2
	if pinned(dst.Buf) != pinned(src.Buf) {
		rate = s.dev.card.Copy
	}
	s.now += duration(float64(src.Len) / rate)
}

func pinned(b gpu.Buffer) bool {
	own, ok := b.(*buffer)
	return ok && own.pinned
}

func (s *stream) Do(fn func() error) {
	if err := fn(); err != nil {
		s.Fail(err)
	}
}

func (s *stream) Record() gpu.Event { return event{s.now, s.err} }

func (s *stream) Wait(e gpu.Event) {
	at := e.(event)
	s.now = max(s.now, at.at)
	if at.err != nil {
		s.Fail(at.err)
	}
}

func (s *stream) Sync() error  { return s.err }
func (s *stream) Close() error { return s.err }

func (s *stream) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// event is a time.
type event struct {
	at  time.Duration
	err error
}

func (e event) Done() bool                  { return true }
func (e event) Await(context.Context) error { return e.err }

var (
	_ gpu.Device      = (*Device)(nil)
	_ gpu.Clock       = (*Device)(nil)
	_ gpu.MemReporter = (*Device)(nil)
)
