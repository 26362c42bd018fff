// Package bus is an in-process Pub/Sub behind Watermill's interfaces: ordered,
// lossless and without a limit.
//
// A topic feeds every consumer group that has ever subscribed to it; each group
// has its own queue. What is published before the first group subscribes waits
// for that group. A message leaves its queue when it is acked; nacked, or
// unacked when its subscription ends, it is delivered again before any later
// one. At most one message of a group is in flight, so the subscribers of one
// group take turns and order holds between them too.
//
// Publish never waits for a reader. Queues live in memory until the Bus is
// closed. Every method may be called from any goroutine. One goroutine runs per
// subscription, until its context, its Subscriber or the Bus ends.
package bus

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/hashicorp/go-hclog"
)

// ErrClosed is returned by what has been closed.
var ErrClosed = errors.New("bus: closed")

// Bus holds the topics. Its Publishers and Subscribers are views of it.
type Bus struct {
	log  hclog.Logger
	ctx  context.Context // ends with the bus
	stop context.CancelFunc
	subs sync.WaitGroup // goroutines of subscriptions

	mu     sync.Mutex
	topics map[string]*topic
}

// New makes an empty bus that logs to log.
func New(log hclog.Logger) *Bus {
	ctx, stop := context.WithCancel(context.Background())
	return &Bus{log: log, ctx: ctx, stop: stop, topics: map[string]*topic{}}
}

// Publisher returns a publisher. Closing it closes nothing else.
func (b *Bus) Publisher() (message.Publisher, error) { return &publisher{bus: b}, nil }

// Subscriber returns a subscriber of a consumer group. Closing it ends its
// subscriptions and keeps the group's queues.
func (b *Bus) Subscriber(group string) (message.Subscriber, error) {
	ctx, stop := context.WithCancel(b.ctx)
	return &subscriber{bus: b, group: group, ctx: ctx, stop: stop}, nil
}

// Close ends every subscription and waits for it. What is still queued is dropped.
func (b *Bus) Close() error {
	b.mu.Lock()
	b.stop()
	b.mu.Unlock()
	b.subs.Wait()
	return nil
}

func (b *Bus) publish(name string, msgs []*message.Message) error {
	b.mu.Lock()
	if b.ctx.Err() != nil {
		b.mu.Unlock()
		return ErrClosed
	}
	t := b.topic(name)
	b.mu.Unlock()
	t.publish(msgs)
	if b.log.IsTrace() {
		b.log.Trace("published", "topic", name, "messages", len(msgs))
	}
	return nil
}

// topic returns the topic of a name; b.mu is held.
func (b *Bus) topic(name string) *topic {
	t, ok := b.topics[name]
	if !ok {
		t = &topic{groups: map[string]*group{}}
		b.topics[name] = t
	}
	return t
}

type publisher struct {
	bus *Bus

	mu     sync.Mutex
	closed bool
}

// Publish queues copies of the messages. Their payloads are shared and must not
// be changed afterwards.
func (p *publisher) Publish(topic string, msgs ...*message.Message) error {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return ErrClosed
	}
	return p.bus.publish(topic, msgs)
}

func (p *publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}
