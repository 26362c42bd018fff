package gpu

import (
	"context"
	"fmt"
	"maps"
	"sync"
)

// Discard is a device that does no work: its buffers have no memory and its
// streams drop what is queued, after checking kernels' arguments. With a
// tensor.MeasuringArena a model's forward and backward on it are the memory
// plan, and Counts is the compute plan. Safe for concurrent use.
type Discard struct {
	mu     sync.Mutex
	counts map[string]Count
}

// Count is how often a kernel was queued and what the calls cost together.
type Count struct {
	Calls int
	Cost
}

// NewDiscard returns a device that counts from zero.
func NewDiscard() *Discard { return &Discard{counts: map[string]Count{}} }

// Counts returns what was queued so far by kernel name; copies are under "copy".
func (d *Discard) Counts() map[string]Count {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.counts)
}

// Info says that the device is none.
func (d *Discard) Info() Info { return Info{Kind: "discard", Name: "dry run"} }

// Alloc returns a buffer of that size without memory.
func (d *Discard) Alloc(bytes int64) (Buffer, error) { return discardBuffer(bytes), nil }

// AllocHost returns a buffer of that size without memory.
func (d *Discard) AllocHost(bytes int64) (Buffer, error) { return discardBuffer(bytes), nil }

// NewStream returns a stream that counts and drops.
func (d *Discard) NewStream(name string) (Stream, error) {
	return &discardStream{dev: d, name: name}, nil
}

// Close does nothing.
func (d *Discard) Close() error { return nil }

func (d *Discard) add(name string, c Cost) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.counts[name]
	n.Calls++
	n.FLOPs += c.FLOPs
	n.Bytes += c.Bytes
	d.counts[name] = n
}

type discardBuffer int64

func (b discardBuffer) Size() int64  { return int64(b) }
func (b discardBuffer) Host() []byte { return nil }
func (b discardBuffer) Free() error  { return nil }

type discardStream struct {
	dev  *Discard
	name string
	err  error
}

func (s *discardStream) Name() string { return s.name }

func (s *discardStream) Launch(k Kernel) {
	if c, ok := k.(Checker); ok {
		if err := c.Check(); err != nil {
			s.Fail(fmt.Errorf("stream %s: %s: %w", s.name, k.Name(), err))
		}
	}
	var cost Cost
	if c, ok := k.(Coster); ok {
		cost = c.Cost()
	}
	s.dev.add(k.Name(), cost)
}

func (s *discardStream) Copy(dst, src Region) {
	if dst.Len != src.Len {
		s.Fail(fmt.Errorf("stream %s: copy: %d bytes to a region of %d", s.name, src.Len, dst.Len))
	}
	s.dev.add("copy", Cost{Bytes: src.Len})
}

func (s *discardStream) Do(func() error) {}
func (s *discardStream) Record() Event   { return discardEvent{} }
func (s *discardStream) Wait(Event)      {}
func (s *discardStream) Sync() error     { return s.err }
func (s *discardStream) Close() error    { return s.err }

func (s *discardStream) Fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// discardEvent is reached from the start.
type discardEvent struct{}

func (discardEvent) Done() bool                  { return true }
func (discardEvent) Await(context.Context) error { return nil }

var _ Device = (*Discard)(nil)
