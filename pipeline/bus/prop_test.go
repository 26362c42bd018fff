package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"
)

func number(i int) *message.Message { return message.NewMessage(strconv.Itoa(i), []byte{byte(i)}) }

// open returns a publisher and a subscriber of a group.
func open(t interface{ Fatal(...any) }, b *Bus, group string) (message.Publisher, message.Subscriber) {
	pub, err := b.Publisher()
	if err != nil {
		t.Fatal(err)
	}
	sub, err := b.Subscriber(group)
	if err != nil {
		t.Fatal(err)
	}
	return pub, sub
}

// Every group sees every message in the order of publishing, whatever is nacked
// and whenever its subscriptions come and go, with an ack missing or not.
func TestOrderAndLossless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(hclog.NewNullLogger())
		defer b.Close()
		const groups = 2
		n := rapid.IntRange(0, 40).Draw(t, "messages")
		before := rapid.IntRange(0, n).Draw(t, "published before anyone subscribes")
		pub, _ := open(t, b, "")
		// A group that has subscribed keeps its queue; the first gets the backlog.
		for g := range groups {
			_, sub := open(t, b, strconv.Itoa(g))
			if g == 0 {
				for i := range before {
					if err := pub.Publish("t", number(i)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := sub.(message.SubscribeInitializer).SubscribeInitialize("t"); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		got := make([][]string, groups)
		first := []int{0, before} // the number of the group's first message
		plans := make([][]int, groups)
		for g := range groups {
			plans[g] = rapid.SliceOfN(rapid.IntRange(0, 2), 0, 60).Draw(t, "plan")
		}
		for g := range groups {
			how := rapid.SampledFrom([]func(*Bus, string, int, []int) []string{read, readDirect}).Draw(t, "how it reads")
			wg.Go(func() { got[g] = how(b, strconv.Itoa(g), n-first[g], plans[g]) })
		}
		for i := before; i < n; i++ {
			if err := pub.Publish("t", number(i)); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		for g := range groups {
			var want []string
			for i := first[g]; i < n; i++ {
				want = append(want, strconv.Itoa(i))
			}
			if !slices.Equal(got[g], want) {
				t.Fatalf("group %d got %v, want %v", g, got[g], want)
			}
		}
	})
}

// read reads want messages of a group. Its plan says for each delivery: 0 ack,
// 1 nack, 2 end the subscription without either and subscribe anew.
func read(b *Bus, group string, want int, plan []int) (got []string) {
	for len(got) < want {
		sub, _ := b.Subscriber(group)
		ch, err := sub.Subscribe(context.Background(), "t")
		if err != nil {
			return append(got, err.Error())
		}
		for again := true; again && len(got) < want; {
			m := <-ch
			action := 0
			if len(plan) > 0 {
				action, plan = plan[0], plan[1:]
			}
			switch action {
			case 0:
				got = append(got, m.UUID)
				m.Ack()
			case 1:
				m.Nack()
			case 2:
				again = false
			}
		}
		sub.Close()
	}
	return got
}

// readDirect is read by Direct.
func readDirect(b *Bus, group string, want int, plan []int) (got []string) {
	for len(got) < want {
		sub, _ := b.Subscriber(group)
		d, err := sub.(*subscriber).Direct("t")
		if err != nil {
			return append(got, err.Error())
		}
		for again := true; again && len(got) < want; {
			m, err := d.Next(context.Background(), nil)
			if err != nil {
				return append(got, err.Error())
			}
			action := 0
			if len(plan) > 0 {
				action, plan = plan[0], plan[1:]
			}
			switch action {
			case 0:
				got = append(got, m.UUID)
				m.Ack()
			case 1:
				m.Nack()
			case 2:
				again = false
			}
		}
		d.Leave()
		sub.Close()
	}
	return got
}

// What is given reaches every group as what is published does, and a reader that
// waits directly ends with its context, its done, its subscriber or the bus.
func TestDirectEnds(t *testing.T) {
	b := New(hclog.NewNullLogger())
	pub, first := open(t, b, "first")
	_, second := open(t, b, "second")
	a, err := first.(*subscriber).Direct("t")
	if err != nil {
		t.Fatal(err)
	}
	c, err := second.(*subscriber).Direct("t")
	if err != nil {
		t.Fatal(err)
	}
	if err := pub.(*publisher).Give("t", number(7)); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*Direct{a, c} {
		m, err := d.Next(t.Context(), nil)
		if err != nil || m.UUID != "7" {
			t.Fatalf("got %v, error %v", m, err)
		}
		m.Ack()
	}
	done := make(chan struct{})
	close(done)
	if _, err := a.Next(t.Context(), done); err != io.EOF {
		t.Errorf("done: error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Next(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
	first.Close()
	if _, err := a.Next(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("subscriber closed: error %v", err)
	}
	a.Leave()
	b.Close()
	if _, err := c.Next(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("bus closed: error %v", err)
	}
	if err := pub.(*publisher).Give("t", number(8)); !errors.Is(err, ErrClosed) {
		t.Errorf("give to a closed bus: error %v", err)
	}
}

// Publishers and readers of one topic at once: nothing is lost or doubled, and
// what one publisher sent stays in its order.
func TestConcurrency(t *testing.T) {
	b := New(hclog.NewNullLogger())
	defer b.Close()
	const publishers, each, readers = 8, 200, 3
	pub, sub := open(t, b, "g")
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for i := range each {
				if err := pub.Publish("t", message.NewMessage(fmt.Sprintf("%d %d", p, i), nil)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var mu sync.Mutex
	next := make([]int, publishers)
	seen := 0
	all := make(chan struct{})
	for range readers {
		ch, err := sub.Subscribe(context.Background(), "t")
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for m := range ch {
				var p, i int
				fmt.Sscan(m.UUID, &p, &i)
				mu.Lock()
				if next[p] != i {
					t.Errorf("publisher %d: message %d came where %d was due", p, i, next[p])
				}
				next[p]++
				m.Ack() // before the end: what is not acked then may come again
				if seen++; seen == publishers*each {
					close(all)
				}
				mu.Unlock()
			}
		})
	}
	select {
	case <-all:
	case <-time.After(20 * time.Second):
		t.Errorf("%d of %d messages came", seen, publishers*each)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

func TestClosed(t *testing.T) {
	b := New(hclog.NewNullLogger())
	pub, sub := open(t, b, "g")
	ch, err := sub.Subscribe(context.Background(), "t")
	if err != nil {
		t.Fatal(err)
	}
	other, _ := open(t, b, "")
	if err := other.Close(); err != nil || !errors.Is(other.Publish("t", number(1)), ErrClosed) {
		t.Error("a closed publisher publishes")
	}
	if err := pub.Publish("t", number(2)); err != nil {
		t.Error(err)
	}
	if m := <-ch; m.UUID != "2" {
		t.Errorf("got %s", m.UUID)
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, open := <-ch; open {
		t.Error("the channel is open")
	}
	if !errors.Is(pub.Publish("t", number(3)), ErrClosed) {
		t.Error("a closed bus publishes")
	}
	if _, err := sub.Subscribe(context.Background(), "t"); !errors.Is(err, ErrClosed) {
		t.Errorf("subscribe: %v", err)
	}
	if err := sub.(message.SubscribeInitializer).SubscribeInitialize("t"); !errors.Is(err, ErrClosed) {
		t.Errorf("initialise: %v", err)
	}
}

func TestLogger(t *testing.T) {
	var buf bytes.Buffer
	log := Logger(hclog.New(&hclog.LoggerOptions{Output: &buf, Level: hclog.Trace, DisableTime: true}))
	log = log.With(watermill.LogFields{"topic": "t"})
	log.Error("e", errors.New("cause"), watermill.LogFields{"b": 2, "a": 1})
	log.Info("i", nil)
	log.Debug("d", nil)
	log.Trace("x", watermill.LogFields{"n": 3})
	for _, want := range []string{"[ERROR] e: topic=t a=1 b=2 error=cause", "[INFO]  i: topic=t", "[DEBUG] d: topic=t", "[TRACE] x: topic=t n=3"} {
		if !strings.Contains(buf.String(), want) {
			t.Errorf("%q is missing in\n%s", want, buf.String())
		}
	}
}

// BenchmarkHop is one message through a topic: publish, deliver, ack.
func BenchmarkHop(b *testing.B) {
	bus := New(hclog.NewNullLogger())
	defer bus.Close()
	pub, sub := open(b, bus, "g")
	ch, err := sub.Subscribe(context.Background(), "t")
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 1<<10)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := pub.Publish("t", message.NewMessage("1", payload)); err != nil {
			b.Fatal(err)
		}
		(<-ch).Ack()
	}
}
