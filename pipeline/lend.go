package pipeline

import (
	"context"
	"errors"
	"io"
	"reflect"
	"sync/atomic"
)

// Lend is an output port whose value is lent.
type Lend[T any] struct {
	p     *port
	edges []*loanEdge[T] // in list order of the borrowers
	end   chan struct{}  // closed when the lender's Run has returned
}

// Borrow is the input port of a Lend.
type Borrow[T any] struct {
	p       *port
	want    func(Moment) bool
	edge    *loanEdge[T]
	done    chan struct{} // closed when the borrower's Run has returned
	stopped atomic.Bool
}

// loanEdge leads from a lender to one borrower.
type loanEdge[T any] struct {
	stage  string // id of the borrower
	want   func(Moment) bool
	offers chan loan[T]
	done   chan struct{} // the borrower's
	end    chan struct{} // the lender's
}

type loan[T any] struct {
	v    T
	at   Moment
	back chan error
}

var errNotGivenBack = errors.New("ended without giving back what was lent to it")

// Name returns the port's name.
func (l *Lend[T]) Name() string { return l.p.name }

// Elem returns the type of the port's value.
func (l *Lend[T]) Elem() reflect.Type { return l.p.elem }
func (l *Lend[T]) port() *port        { return l.p }

func (l *Lend[T]) lend(ctx context.Context, at Moment, v T) error {
	for _, e := range l.edges {
		if e.left() || !e.want(at) {
			continue
		}
		offer := loan[T]{v: v, at: at, back: make(chan error, 1)}
		select {
		case e.offers <- offer:
		case <-e.done:
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := e.wait(offer); err != nil {
			return &StageError{Stage: e.stage, Err: err}
		}
	}
	return nil
}

func (l *Lend[T]) wanted(at Moment) bool {
	for _, e := range l.edges {
		if !e.left() && e.want(at) {
			return true
		}
	}
	return false
}

func (l *Lend[T]) bind(k link, to Port) error {
	b := to.(*Borrow[T])
	e := &loanEdge[T]{stage: k.stage, want: b.want, offers: make(chan loan[T]), done: b.done, end: l.end}
	l.edges = append(l.edges, e)
	b.edge = e
	l.p.connected, b.p.connected = true, true
	return nil
}

func (l *Lend[T]) finish(context.Context) error {
	close(l.end)
	return nil
}

func (l *Lend[T]) discard() {}

func (e *loanEdge[T]) left() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// wait returns what the borrower gave back with.
func (e *loanEdge[T]) wait(offer loan[T]) error {
	select {
	case err := <-offer.back:
		return err
	case <-e.done:
		select {
		case err := <-offer.back:
			return err
		default:
			return errNotGivenBack
		}
	}
}

// Name returns the port's name.
func (b *Borrow[T]) Name() string { return b.p.name }

// Elem returns the type of the port's value.
func (b *Borrow[T]) Elem() reflect.Type { return b.p.elem }
func (b *Borrow[T]) port() *port        { return b.p }

func (b *Borrow[T]) recv(ctx context.Context) (v T, at Moment, giveBack func(error), err error) {
	giveBack = func(error) {}
	if b.edge == nil {
		return v, at, giveBack, io.EOF
	}
	select {
	case l := <-b.edge.offers:
		return l.v, l.at, func(err error) {
			select {
			case l.back <- err:
			default: // it was given back already
			}
		}, nil
	case <-b.edge.end:
		return v, at, giveBack, io.EOF
	case <-ctx.Done():
		return v, at, giveBack, ctx.Err()
	}
}

func (b *Borrow[T]) stop() {
	if !b.stopped.Swap(true) {
		close(b.done)
	}
}
