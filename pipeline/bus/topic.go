package bus

import (
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// topic hands what is published to its groups, in one order for all of them.
type topic struct {
	mu      sync.Mutex
	groups  map[string]*group
	backlog []*message.Message // published before there was a group
}

func (t *topic) publish(msgs []*message.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range msgs {
		if len(t.groups) == 0 {
			t.backlog = append(t.backlog, m.Copy())
		}
		for _, g := range t.groups {
			g.push(m.Copy())
		}
	}
}

// group returns the group of a name; the first gets the backlog.
func (t *topic) group(name string) *group {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, ok := t.groups[name]
	if !ok {
		g = &group{turn: make(chan struct{}, 1), ready: make(chan struct{}, 1)}
		t.groups[name] = g
		for _, m := range t.backlog {
			g.push(m)
		}
		t.backlog = nil
	}
	return g
}

// group is the queue of a consumer group on one topic.
type group struct {
	turn  chan struct{} // held by the subscription that delivers
	ready chan struct{} // has a value when the queue may have become non-empty

	mu    sync.Mutex
	queue []*message.Message
}

func (g *group) push(m *message.Message) {
	g.mu.Lock()
	g.queue = append(g.queue, m)
	g.mu.Unlock()
	select {
	case g.ready <- struct{}{}:
	default:
	}
}

// head returns the oldest message, nil where there is none. Only the holder of
// the turn calls it and the two below.
func (g *group) head() *message.Message {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		return nil
	}
	return g.queue[0]
}

// drop forgets the head: it was acked.
func (g *group) drop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue[0] = nil
	g.queue = g.queue[1:]
}

// renew replaces the head by a copy that can be acked again.
func (g *group) renew() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue[0] = g.queue[0].Copy()
}
