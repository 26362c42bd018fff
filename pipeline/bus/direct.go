package bus

import (
	"context"
	"io"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Direct receives the messages of a group on the caller's goroutine: what
// Subscribe gives, without the goroutine and the channel between the queue and
// the reader. It is for one goroutine at a time.
type Direct struct {
	bus   *subscriber
	group *group
	held  bool             // the group's turn is ours
	m     *message.Message // given out and not yet seen to be acked
}

// Direct begins to receive a topic's messages for the group of the subscriber.
func (s *subscriber) Direct(name string) (*Direct, error) {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, ErrClosed
	}
	return &Direct{bus: s, group: s.bus.topic(name).group(s.group)}, nil
}

// Next waits for the next message. The one before must be acked, or nacked and
// is then given again; Next waits for that too. It returns io.EOF when done is
// closed, ctx's error, or ErrClosed when the subscriber or the bus is closed. A
// message's context is ctx.
func (d *Direct) Next(ctx context.Context, done <-chan struct{}) (*message.Message, error) {
	ended := func() error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return ErrClosed
	}
	if !d.held {
		select {
		case d.group.turn <- struct{}{}:
			d.held = true
		case <-done:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ended()
		case <-d.bus.ctx.Done():
			return nil, ended()
		}
	}
	if d.m != nil {
		select {
		case <-d.m.Acked():
			d.group.drop()
		case <-d.m.Nacked():
			d.group.renew()
		case <-done:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ended()
		case <-d.bus.ctx.Done():
			return nil, ended()
		}
		d.m = nil
	}
	for {
		if m := d.group.head(); m != nil {
			m.SetContext(ctx)
			d.m = m
			return m, nil
		}
		select {
		case <-d.group.ready:
		case <-done:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ended()
		case <-d.bus.ctx.Done():
			return nil, ended()
		}
	}
}

// Leave ends the reception; a message that was given out and not acked is
// delivered again to whoever receives for the group next.
func (d *Direct) Leave() {
	if !d.held {
		return
	}
	if d.m != nil {
		select {
		case <-d.m.Acked():
			d.group.drop()
		default:
			d.group.renew()
		}
		d.m = nil
	}
	d.held = false
	<-d.group.turn
}

// Give publishes a message that the caller will not touch again, so that the
// first group need not have a copy.
func (p *publisher) Give(topic string, m *message.Message) error {
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return ErrClosed
	}
	b := p.bus
	b.mu.Lock()
	if b.ctx.Err() != nil {
		b.mu.Unlock()
		return ErrClosed
	}
	t := b.topic(topic)
	b.mu.Unlock()
	t.give(m)
	return nil
}

// give is publish of one message that is the topic's from now on.
func (t *topic) give(m *message.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.groups) == 0 {
		t.backlog = append(t.backlog, m)
		return
	}
	left := len(t.groups)
	for _, g := range t.groups {
		if left--; left > 0 {
			g.push(m.Copy())
		} else {
			g.push(m)
		}
	}
}
