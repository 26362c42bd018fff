package pipeline

import (
	"context"
	"io"
	"reflect"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// In is an input port.
type In[T any] struct {
	p       *port
	turn    chan struct{} // held by the goroutine that receives
	feeds   []feed[T]     // in the order of `in:`; those at the front that ended are gone
	done    chan struct{} // closed by close
	stopped atomic.Bool
}

// feed is the receiving end of one edge.
type feed[T any] interface {
	// receive returns io.EOF at the end of the edge, or when done is closed.
	receive(ctx context.Context, done <-chan struct{}) (delivery[T], error)
	// leave says that nothing is received any more.
	leave()
}

// delivery is a value with the message it came in; a handle came in none.
type delivery[T any] struct {
	v   T
	msg *message.Message // acked by whoever is done with v

	// kept says, where it is set, that v is taken without telling when it is done with
	kept func()
}

// discard closes a handle that nobody will use.
func (d delivery[T]) discard() error {
	if c, ok := any(d.v).(io.Closer); ok && d.msg == nil {
		return c.Close()
	}
	return nil
}

// Name returns the port's name.
func (i *In[T]) Name() string { return i.p.name }

// Elem returns the type of the port's values.
func (i *In[T]) Elem() reflect.Type { return i.p.elem }
func (i *In[T]) port() *port        { return i.p }

func (i *In[T]) recv(ctx context.Context) (T, error) {
	d, err := i.next(ctx)
	if d.kept != nil {
		d.kept()
	} else if d.msg != nil {
		d.msg.Ack()
	}
	return d.v, err
}

// next returns the next value, its message not yet acked.
func (i *In[T]) next(ctx context.Context) (delivery[T], error) {
	select {
	case i.turn <- struct{}{}:
	case <-ctx.Done():
		return delivery[T]{}, ctx.Err()
	}
	defer func() { <-i.turn }()
	for len(i.feeds) > 0 {
		d, err := i.feeds[0].receive(ctx, i.done)
		if err != io.EOF {
			return d, err
		}
		if i.stopped.Load() {
			break
		}
		i.feeds[0].leave()
		i.feeds = i.feeds[1:]
	}
	return delivery[T]{}, io.EOF
}

func (i *In[T]) close() {
	if i.stopped.Swap(true) {
		return
	}
	close(i.done)
	i.turn <- struct{}{} // a Recv under way returns first
	for _, f := range i.feeds {
		f.leave()
	}
	i.feeds = nil
	<-i.turn
}

func (i *In[T]) stop() { i.close() }
