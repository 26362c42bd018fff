package pipeline

import (
	"context"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"

	"longship/pipeline/bus"
)

// chaos is a Bus that delivers in any order within a window, and some twice.
type chaos struct {
	*bus.Bus
	rng    *rand.Rand
	window int
}

func (c chaos) Publisher() (message.Publisher, error) {
	p, err := c.Bus.Publisher()
	return &chaosPublisher{Publisher: p, chaos: c}, err
}

type chaosPublisher struct {
	message.Publisher
	chaos
	held []*message.Message
}

func (p *chaosPublisher) Close() error { return p.Publisher.Close() }

func (p *chaosPublisher) Publish(topic string, msgs ...*message.Message) error {
	for _, m := range msgs {
		p.held = append(p.held, m)
		if p.rng.IntN(4) == 0 {
			p.held = append(p.held, m.Copy())
		}
		if len(p.held) < p.window && m.Metadata.Get(metaEnd) == "" {
			continue
		}
		p.rng.Shuffle(len(p.held), func(i, j int) { p.held[i], p.held[j] = p.held[j], p.held[i] })
		if err := p.Publisher.Publish(topic, p.held...); err != nil {
			return err
		}
		p.held = nil
	}
	return nil
}

// Whatever order the bus has, an input gives its sources' values in the order
// they were sent, each once, one source whole before the next.
func TestEdgesKeepOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := chaos{bus.New(hclog.NewNullLogger()), rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), rapid.IntRange(1, 12).Draw(t, "window")}
		defer b.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		in := NewIn[sample]("in")
		counts := rapid.SliceOfN(rapid.IntRange(0, 30), 1, 3).Draw(t, "sources")
		errs := make(chan error, len(counts))
		for s, n := range counts {
			out := NewOut[sample]("out")
			if err := out.bind(link{ctx: ctx, bus: b, from: string(rune('a'+s)) + ".out", to: "b.in"}, in); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if err := out.Send(ctx, sample{N: s*100 + i}); err != nil {
					t.Fatal(err)
				}
			}
			errs <- out.finish(ctx)
		}
		for s, n := range counts {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
			for i := range n {
				v, err := in.Recv(ctx)
				if err != nil || v.N != s*100+i {
					t.Fatalf("got %v, %v; want %d", v, err, s*100+i)
				}
			}
		}
		if v, err := in.Recv(ctx); err != io.EOF {
			t.Fatalf("got %v, %v after the end", v, err)
		}
	})
}

// Several goroutines that receive from one input get every value once.
func TestConcurrentReceivers(t *testing.T) {
	b := bus.New(hclog.NewNullLogger())
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, in := NewOut[sample]("out"), NewIn[sample]("in")
	if err := out.bind(link{ctx: ctx, bus: b, from: "a.out", to: "b.in"}, in); err != nil {
		t.Fatal(err)
	}
	const n, receivers = 500, 4
	got := make(chan int, n)
	errs := make(chan error, receivers)
	for range receivers {
		go func() {
			for {
				v, err := in.Recv(ctx)
				if err != nil {
					errs <- err
					return
				}
				got <- v.N
			}
		}()
	}
	for i := range n {
		if err := out.Send(ctx, sample{N: i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.finish(ctx); err != nil {
		t.Fatal(err)
	}
	for range receivers {
		if err := <-errs; err != io.EOF {
			t.Error(err)
		}
	}
	seen := map[int]bool{}
	for range n {
		seen[<-got] = true
	}
	if len(seen) != n {
		t.Errorf("%d of %d values came", len(seen), n)
	}
}
