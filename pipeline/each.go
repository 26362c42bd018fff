package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"longship/pipeline/bus"
)

// Retries of an item that failed with a Retryable error: after 0.1, 0.4, 1.6, 2
// and 2 seconds. Watermill's Retry takes two steps of its back-off a try where it
// asks whether to retry, so the first is half of what is waited.
const (
	maxRetries   = 5
	firstRetryIn = 50 * time.Millisecond
	maxRetryIn   = 2 * time.Second
	retryFactor  = 2
)

// Named is implemented by values that have a name for people: what the summary
// and errors call an item.
type Named interface{ ItemName() string }

// Retryable marks an error as one that may go away: a network file system that
// did not answer. Each tries again. An error that says the same at every try
// (no such file, no permission, disk full) stays what it is, as does nil.
func Retryable(err error) error {
	for _, lasting := range []error{fs.ErrNotExist, fs.ErrPermission, fs.ErrExist, fs.ErrInvalid, fs.ErrClosed,
		context.Canceled, context.DeadlineExceeded, syscall.ENOSPC, syscall.EISDIR, syscall.ENOTDIR} {
		if errors.Is(err, lasting) {
			return err
		}
	}
	if err == nil {
		return nil
	}
	return &retryable{err}
}

// Reject marks an error as the fault of the item in hand: Each sets the item
// aside and goes on with the next. nil stays nil.
func Reject(err error) error {
	if err == nil {
		return nil
	}
	return &rejected{err}
}

type retryable struct{ err error }

func (e *retryable) Error() string { return e.err.Error() }
func (e *retryable) Unwrap() error { return e.err }

type rejected struct{ err error }

func (e *rejected) Error() string { return e.err.Error() }
func (e *rejected) Unwrap() error { return e.err }

// Each calls fn for every value of in, one after the other in their order, until
// the input is drained or the user asks the run to stop (Env.Stopping). fn runs
// inside Watermill's middleware: an error marked Retryable is tried again, an
// item whose error is marked Reject is set aside, and any other error ends Each
// and names the item. ErrDone from fn, an output nobody wants, ends it with nil.
// A message is acked when fn is done with it.
func Each[T any](ctx context.Context, set Settings, in *In[T], fn func(ctx context.Context, v T) error) error {
	recvCtx, stopRecv := set.Env.UntilStopped(ctx)
	defer stopRecv()
	var d delivery[T]
	var item string
	handle, err := middlewares(set, &item, func(m *message.Message) ([]*message.Message, error) {
		return nil, fn(m.Context(), d.v)
	})
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		d, err = in.next(recvCtx)
		switch stopped := set.Env.Stopped() && ctx.Err() == nil; {
		case err == io.EOF, err != nil && stopped:
			return nil
		case stopped:
			return d.discard()
		case err != nil:
			return err
		}
		item = itemName(d.v, in.p, n)
		m := d.msg
		if m == nil { // a handle
			m = message.NewMessage("", nil)
		}
		m.SetContext(ctx)
		_, err = handle(m)
		if errors.Is(err, ErrDone) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", item, err)
		}
		m.Ack()
	}
}

// itemName is what the n-th value of an input is called.
func itemName(v any, p *port, n int) string {
	if named, ok := v.(Named); ok {
		return named.ItemName()
	}
	if m, ok := v.(Message); ok {
		return fmt.Sprintf("%s %d", m.MessageType(), n)
	}
	return fmt.Sprintf("%s %d", p.name, n)
}

// middlewares puts the poison queue around the retries around h; item is the
// name of the item in hand.
func middlewares(set Settings, item *string, h message.HandlerFunc) (message.HandlerFunc, error) {
	retry := middleware.Retry{
		MaxRetries:      maxRetries,
		InitialInterval: firstRetryIn,
		MaxInterval:     maxRetryIn,
		Multiplier:      retryFactor,
		ShouldRetry:     func(p middleware.RetryParams) bool { return isA[*retryable](p.Err) },
		Logger:          bus.Logger(set.Log),
	}
	poison, err := middleware.PoisonQueueWithFilter(&poisonQueue{set, item}, set.ID, isA[*rejected])
	if err != nil {
		return nil, fmt.Errorf("make poison queue: %w", err)
	}
	return poison(retry.Middleware(h)), nil
}

func isA[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// poisonQueue is the publisher of the poison queue: it sets items aside.
type poisonQueue struct {
	set  Settings
	item *string
}

func (q *poisonQueue) Publish(_ string, msgs ...*message.Message) error {
	for _, m := range msgs {
		q.set.SetAside(m.Context(), *q.item, errors.New(m.Metadata.Get(middleware.ReasonForPoisonedKey)))
	}
	return nil
}

func (q *poisonQueue) Close() error { return nil }
