package bus

import (
	"context"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

type subscriber struct {
	bus   *Bus
	group string
	ctx   context.Context // ends with the subscriber or the bus
	stop  context.CancelFunc
	subs  sync.WaitGroup
}

// Subscribe starts to deliver the group's messages of a topic. The channel is
// closed when ctx, the subscriber or the bus ends. A message's context is a
// child of ctx and ends when the message is acked or nacked.
func (s *subscriber) Subscribe(ctx context.Context, name string) (<-chan *message.Message, error) {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, ErrClosed
	}
	g := s.bus.topic(name).group(s.group)
	out := make(chan *message.Message)
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(s.ctx, cancel)
	s.subs.Add(1)
	s.bus.subs.Add(1)
	go func() {
		defer s.bus.subs.Done()
		defer s.subs.Done()
		defer close(out)
		defer cancel()
		defer unhook()
		for g.deliver(ctx, out) {
		}
	}()
	return out, nil
}

// SubscribeInitialize makes the group's queue without reading from it.
func (s *subscriber) SubscribeInitialize(name string) error {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	if s.ctx.Err() != nil {
		return ErrClosed
	}
	s.bus.topic(name).group(s.group)
	return nil
}

// Close ends the subscriptions and waits for them.
func (s *subscriber) Close() error {
	s.bus.mu.Lock()
	s.stop()
	s.bus.mu.Unlock()
	s.subs.Wait()
	return nil
}

// deliver takes the group's turn, delivers the head of the queue and waits for
// its ack or nack. It returns false when ctx has ended.
func (g *group) deliver(ctx context.Context, out chan<- *message.Message) bool {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-g.turn }()

	m := g.head()
	for m == nil {
		select {
		case <-g.ready:
			m = g.head()
		case <-ctx.Done():
			return false
		}
	}
	msgCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.SetContext(msgCtx)
	select {
	case out <- m:
	case <-ctx.Done():
		return false
	}
	select {
	case <-m.Acked():
		g.drop()
	case <-m.Nacked():
		g.renew()
	case <-ctx.Done():
		select {
		case <-m.Acked():
			g.drop()
		default:
			g.renew()
		}
		return false
	}
	return true
}
