package pipeline

import (
	"context"
	"fmt"
	"reflect"
)

// Out is an output port.
type Out[T any] struct {
	p       *port
	message *sender     // of messages; nil where nothing is connected
	handle  *handoff[T] // of handles; nil where nothing is connected
	line    Line        // to another process, in place of either
	done    chan struct{}
	end     chan struct{}
}

// Name returns the port's name.
func (o *Out[T]) Name() string { return o.p.name }

// Elem returns the type of the port's values.
func (o *Out[T]) Elem() reflect.Type { return o.p.elem }
func (o *Out[T]) port() *port        { return o.p }

func (o *Out[T]) send(ctx context.Context, v T) error {
	switch {
	case o.line != nil:
		payload, err := encode(v)
		if err != nil {
			return fmt.Errorf("send to %s: %w", o.p.name, err)
		}
		return o.line.Put(ctx, o.p.name, payload)
	case o.message != nil:
		return o.message.send(ctx, v)
	case o.handle != nil:
		return o.handle.send(ctx, v)
	case o.p.message:
		return nil
	}
	return ErrDone
}

func (o *Out[T]) doneChan() <-chan struct{} {
	if !o.p.message && o.handle == nil {
		return closed
	}
	return o.done
}

func (o *Out[T]) finish(ctx context.Context) error {
	close(o.end)
	if o.message != nil {
		return o.message.finish(ctx)
	}
	return nil
}

func (o *Out[T]) discard() {
	if o.handle != nil {
		o.handle.discard()
	}
}

func (o *Out[T]) bind(l link, to Port) error {
	in := to.(*In[T])
	in.p.connected, o.p.connected = true, true
	if !o.p.message {
		o.handle = &handoff[T]{values: make(chan T, o.p.capacity), done: o.done, end: o.end}
		in.feeds = append(in.feeds, o.handle)
		return nil
	}
	if o.message == nil {
		s, err := newSender(l)
		if err != nil {
			return err
		}
		o.message = s
	}
	r, err := newReceiver[T](l)
	if err != nil {
		return err
	}
	o.message.readers = append(o.message.readers, r.left)
	in.feeds = append(in.feeds, r)
	return nil
}

// closed is the Done channel of handle outputs that lead nowhere.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
