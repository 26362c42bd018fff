package pipeline

import (
	"context"
	"errors"
	"reflect"
)

// ErrDone is returned by Send when no receiver wants values any more. The
// sender ends its work as if its inputs were drained.
var ErrDone = errors.New("pipeline: no receiver is left")

// Message is implemented by values that travel as messages: CBOR through
// Watermill, any number of receivers, each of which gets its own copy. A value
// without it is a handle: it goes through a Go channel to exactly one receiver,
// which owns it from then on.
type Message interface{ MessageType() string }

// Port is an input or output of a stage: *In[T], *Out[T], *Lend[T] or *Borrow[T].
type Port interface {
	Name() string
	Elem() reflect.Type // the type of its values
	port() *port        // sealed
}

// Option says more about a port.
type Option func(*port)

// Needs says what the values of an input must carry ("latent", "text").
func Needs(what ...string) Option { return func(p *port) { p.needs = append(p.needs, what...) } }

// Adds says what an output's values carry beyond what they forward.
func Adds(what ...string) Option { return func(p *port) { p.adds = append(p.adds, what...) } }

// Forwards says that an output's values are those of the input, enriched: they
// carry what the input's carry.
func Forwards(in Port) Option { return func(p *port) { p.forwards = in.port() } }

// Optional marks an input that may stay unconnected; Recv then returns io.EOF.
func Optional() Option { return func(p *port) { p.optional = true } }

// Single says that an input takes one source only: its values have no end of
// their own (batches), or the input wants just one (weights), so that a second
// source would never be heard.
func Single() Option { return func(p *port) { p.single = true } }

// Capacity sets how many handles may wait in an edge (default 0: a hand-over).
// Message edges have no limit: a stage that holds a lease on the card must
// never wait for a reader that waits for the lease.
func Capacity(n int) Option { return func(p *port) { p.capacity = n } }

// Moment is a step boundary at which a value may be lent.
type Moment struct {
	Step int  // completed optimiser steps
	Last bool // the run's last step
	Stop bool // the run stops here on request
}

// NewIn declares an input.
func NewIn[T any](name string, opts ...Option) *In[T] {
	return &In[T]{p: newPort[T](input, name, opts), turn: make(chan struct{}, 1), done: make(chan struct{})}
}

// NewOut declares an output.
func NewOut[T any](name string, opts ...Option) *Out[T] {
	return &Out[T]{p: newPort[T](output, name, opts), done: make(chan struct{}), end: make(chan struct{})}
}

// NewLend declares an output whose value is lent, not given.
func NewLend[T any](name string, opts ...Option) *Lend[T] {
	return &Lend[T]{p: newPort[T](lender, name, opts), end: make(chan struct{})}
}

// NewBorrow declares an input that borrows at the moments that want accepts.
// want is called on the lender's goroutine and must be quick.
func NewBorrow[T any](name string, want func(Moment) bool, opts ...Option) *Borrow[T] {
	return &Borrow[T]{p: newPort[T](borrower, name, opts), want: want, done: make(chan struct{})}
}

// Recv returns the next value; io.EOF when the senders are done and nothing is
// left; ctx's error when cancelled. An input with several sources gives them in
// the order of `in:`, each whole before the next. Several goroutines may call it.
func (i *In[T]) Recv(ctx context.Context) (T, error) { return i.recv(ctx) }

// Close says that the receiver wants no more values; Recv then returns io.EOF,
// Send of a handle ErrDone, and messages are dropped. The engine calls it when
// Run returns.
func (i *In[T]) Close() { i.close() }

// Connected says whether the input has a source.
func (i *In[T]) Connected() bool { return i.p.connected }

// Send hands v over. A message is copied and never waits; a handle waits for
// its receiver (or for room, see Capacity) and belongs to it afterwards. An
// unconnected output drops messages and returns ErrDone for handles.
func (o *Out[T]) Send(ctx context.Context, v T) error { return o.send(ctx, v) }

// Done is closed when no receiver wants handles any more: Send would return
// ErrDone. It is for senders that wait for something else meanwhile. An output of
// messages is never done.
func (o *Out[T]) Done() <-chan struct{} { return o.doneChan() }

// Lend lends v at a moment to every borrower that wants it, in list order, one
// after the other, and returns when the last has given it back. A borrower that
// gives back an error stops the run. A value once handed over is waited for even
// when ctx ends.
func (l *Lend[T]) Lend(ctx context.Context, at Moment, v T) error { return l.lend(ctx, at, v) }

// Wanted says whether any borrower wants the value at that moment.
func (l *Lend[T]) Wanted(at Moment) bool { return l.wanted(at) }

// Recv waits for the next loan; io.EOF when the lender is done. The borrower
// must call giveBack exactly once and not touch the value afterwards.
func (b *Borrow[T]) Recv(ctx context.Context) (v T, at Moment, giveBack func(error), err error) {
	return b.recv(ctx)
}
