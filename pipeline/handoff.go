package pipeline

import (
	"context"
	"io"
)

// handoff is an edge of handles: a Go channel with its two ends' farewells.
type handoff[T any] struct {
	values chan T
	done   chan struct{} // the receiver has left
	end    chan struct{} // the sender has finished
}

func (h *handoff[T]) send(ctx context.Context, v T) error {
	select {
	case <-h.done:
		return ErrDone
	default:
	}
	select {
	case h.values <- v:
		return nil
	case <-h.done:
		return ErrDone
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *handoff[T]) receive(ctx context.Context, done <-chan struct{}) (d delivery[T], err error) {
	select {
	case d.v = <-h.values:
	case <-h.end:
		select {
		case d.v = <-h.values: // sent before the end
		default:
			err = io.EOF
		}
	case <-done:
		err = io.EOF
	case <-ctx.Done():
		err = ctx.Err()
	}
	return d, err
}

func (h *handoff[T]) leave() { close(h.done) }

// discard closes the handles that were sent and never received.
func (h *handoff[T]) discard() {
	for {
		select {
		case v := <-h.values:
			if c, ok := any(v).(io.Closer); ok {
				_ = c.Close() // the run has its outcome already
			}
		default:
			return
		}
	}
}
