package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"

	"longship/pipeline/bus"
)

// Bus carries the message edges of a run: Watermill publishers and subscribers.
// Publish must not wait for a reader. The default is package bus. An edge
// numbers its messages, so a Bus may deliver some twice or out of order, but it
// must lose none that is published after Subscribe.
type Bus interface {
	Publisher() (message.Publisher, error)
	// Subscriber returns the subscriber of a consumer group: each group gets
	// every message of a topic.
	Subscriber(group string) (message.Subscriber, error)
	// Close ends every publisher and subscription.
	Close() error
}

// Metadata of a message on an edge.
const (
	metaSeq = "seq" // number of the message on its edge, from 0
	metaEnd = "end" // set on the last message, which has no value
)

// giver and director are what package bus offers beyond Watermill's interfaces:
// a message given away is not copied, and one received directly passes through no
// goroutine of the bus. Another Bus has neither and serves as well.
type (
	giver interface {
		Give(topic string, m *message.Message) error
	}
	director interface {
		Direct(topic string) (*bus.Direct, error)
	}
)

// sender is the sending end of the message edges of one output.
type sender struct {
	topic   string
	pub     message.Publisher
	give    giver          // pub, where it takes messages without a copy
	readers []*atomic.Bool // true where the reader has left

	mu  sync.Mutex
	seq uint64
}

func newSender(l link) (*sender, error) {
	pub, err := l.bus.Publisher()
	if err != nil {
		return nil, fmt.Errorf("open publisher of %s: %w", l.from, err)
	}
	s := &sender{topic: l.from, pub: pub}
	s.give, _ = pub.(giver)
	return s, nil
}

func (s *sender) send(ctx context.Context, v any) error {
	if s.abandoned() {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	payload, err := encode(v)
	if err != nil {
		return fmt.Errorf("send to %s: %w", s.topic, err)
	}
	return s.publish(ctx, payload, false)
}

// abandoned says whether every reader has left.
func (s *sender) abandoned() bool {
	for _, left := range s.readers {
		if !left.Load() {
			return false
		}
	}
	return true
}

func (s *sender) publish(ctx context.Context, payload []byte, end bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := strconv.FormatUint(s.seq, 10)
	m := message.NewMessageWithContext(ctx, s.topic+"/"+seq, payload)
	m.Metadata.Set(metaSeq, seq)
	if end {
		m.Metadata.Set(metaEnd, "1")
	}
	publish := s.pub.Publish
	if s.give != nil {
		publish = func(topic string, m ...*message.Message) error { return s.give.Give(topic, m[0]) }
	}
	if err := publish(s.topic, m); err != nil {
		return fmt.Errorf("publish to %s: %w", s.topic, err)
	}
	s.seq++
	return nil
}

func (s *sender) finish(ctx context.Context) error {
	if s.abandoned() {
		return nil
	}
	return s.publish(ctx, nil, true)
}

// receiver is the receiving end of one message edge.
type receiver[T any] struct {
	from   string
	ch     <-chan *message.Message
	direct *bus.Direct        // in place of ch
	cancel context.CancelFunc // of the subscription
	left   *atomic.Bool
	next   uint64                      // number of the next message
	early  map[uint64]*message.Message // arrived before their turn, acked
}

func newReceiver[T any](l link) (*receiver[T], error) {
	fail := func(err error) (*receiver[T], error) {
		return nil, fmt.Errorf("subscribe %s to %s: %w", l.to, l.from, err)
	}
	sub, err := l.bus.Subscriber(l.to)
	if err != nil {
		return fail(err)
	}
	if d, ok := sub.(director); ok {
		direct, err := d.Direct(l.from)
		if err != nil {
			return fail(err)
		}
		return &receiver[T]{from: l.from, direct: direct, cancel: direct.Leave, left: new(atomic.Bool)}, nil
	}
	ctx, cancel := context.WithCancel(l.ctx)
	ch, err := sub.Subscribe(ctx, l.from)
	if err != nil {
		cancel()
		return fail(err)
	}
	return &receiver[T]{from: l.from, ch: ch, cancel: cancel, left: new(atomic.Bool)}, nil
}

// receive gives the messages in the order they were sent, each once.
func (r *receiver[T]) receive(ctx context.Context, done <-chan struct{}) (d delivery[T], err error) {
	m, err := r.inOrder(ctx, done)
	if err != nil {
		return d, err
	}
	r.next++
	if m.Metadata.Get(metaEnd) != "" {
		m.Ack()
		return d, io.EOF
	}
	d.msg = m
	if err := decode(m.Payload, &d.v); err != nil {
		return d, fmt.Errorf("message %s: %w", m.UUID, err)
	}
	return d, nil
}

func (r *receiver[T]) inOrder(ctx context.Context, done <-chan struct{}) (*message.Message, error) {
	for {
		if m, ok := r.early[r.next]; ok {
			delete(r.early, r.next)
			return m, nil
		}
		m, err := r.arrival(ctx, done)
		if err != nil {
			return nil, err
		}
		seq, err := strconv.ParseUint(m.Metadata.Get(metaSeq), 10, 64)
		switch {
		case err != nil:
			return nil, fmt.Errorf("message %q from %s has no number: %w", m.UUID, r.from, err)
		case seq == r.next:
			return m, nil
		case seq > r.next:
			if r.early == nil {
				r.early = map[uint64]*message.Message{}
			}
			r.early[seq] = m
		}
		m.Ack()
	}
}

// arrival returns the next message as the bus delivers them.
func (r *receiver[T]) arrival(ctx context.Context, done <-chan struct{}) (m *message.Message, err error) {
	open := true
	switch {
	case r.direct != nil:
		if m, err = r.direct.Next(ctx, done); errors.Is(err, bus.ErrClosed) {
			open, err = false, nil
		}
	default:
		select {
		case m, open = <-r.ch:
		case <-done:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if !open {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("messages from %s: the bus ended the subscription after %d", r.from, r.next)
	}
	return m, err
}

func (r *receiver[T]) leave() {
	r.left.Store(true)
	r.cancel()
}
