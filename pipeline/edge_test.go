package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/hashicorp/go-hclog"

	"longship/pipeline/bus"
)

// A borrower's failure is its own, though it reaches the engine through the lender.
func TestLoanFailures(t *testing.T) {
	cause := errors.New("disk full")
	borrow := func(use func(giveBack func(error)) error) func(*fake) {
		return func(s *fake) {
			in := NewBorrow[*state]("state", func(Moment) bool { return true })
			s.ports = []Port{in}
			s.run = func(ctx context.Context, s *fake) error {
				_, _, giveBack, err := in.Recv(ctx)
				if err != nil {
					return err
				}
				return use(giveBack)
			}
		}
	}
	src := "stages: [dataset, latents, textembed, quantize, prefetch, train, probe]"
	t.Run("gives back an error", func(t *testing.T) {
		p := with(t, src, Options{}, borrow(func(giveBack func(error)) error { giveBack(cause); giveBack(nil); return nil }))
		if _, err := p.Run(context.Background(), RunOptions{}); !errors.Is(err, cause) || err.Error() != "stage probe: disk full" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("fails with the value in hand", func(t *testing.T) {
		p := with(t, src, Options{}, borrow(func(func(error)) error { return cause }))
		if _, err := p.Run(context.Background(), RunOptions{}); !errors.Is(err, cause) || err.Error() != "stage probe: disk full" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("ends with the value in hand", func(t *testing.T) {
		p := with(t, src, Options{}, borrow(func(func(error)) error { return nil }))
		if _, err := p.Run(context.Background(), RunOptions{}); err == nil || err.Error() != "stage probe: ended without giving back what was lent to it" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("leaves early", func(t *testing.T) {
		p := with(t, src, Options{}, borrow(func(giveBack func(error)) error { giveBack(nil); return nil }))
		if _, err := p.Run(context.Background(), RunOptions{}); err != nil {
			t.Errorf("error %v", err)
		}
	})
}

// Borrowers are served in list order, each at the moments it wants.
func TestLoanOrder(t *testing.T) {
	var log []string
	p := with(t, full+"  - probe: {id: third}\n  - probe: {id: second}\n", Options{}, func(s *fake) {
		in := NewBorrow[*state]("state", func(at Moment) bool { return s.set.ID == "third" && at.Step <= 2 || at.Last })
		s.ports = []Port{in}
		s.run = func(ctx context.Context, s *fake) error {
			for {
				v, at, giveBack, err := in.Recv(ctx)
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
				log = append(log, fmt.Sprintf("%s %d %v", s.set.ID, v.step, at.Last))
				giveBack(nil)
			}
		}
	})
	if _, err := p.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := "[third 1 false third 2 false third 12 true second 12 true]"; fmt.Sprint(log) != want {
		t.Errorf("loans %v, want %s", log, want)
	}
}

// A handle that was sent and never received is closed when the run ends.
func TestHandlesLeftAreClosed(t *testing.T) {
	w := &weights{}
	src := "stages: [probe: {id: give}, probe: {id: take}]"
	p := with(t, src, Options{}, func(s *fake) {
		if s.set.ID == "take" {
			s.ports = []Port{NewIn[*weights]("in")}
			s.run = func(ctx context.Context, s *fake) error {
				<-ctx.Done()
				return ctx.Err()
			}
			return
		}
		out := NewOut[*weights]("out", Capacity(1))
		s.ports = []Port{out}
		s.run = func(ctx context.Context, s *fake) error {
			if err := out.Send(ctx, w); err != nil {
				return err
			}
			return errors.New("fails")
		}
	})
	if _, err := p.Run(context.Background(), RunOptions{}); err == nil || !w.closed {
		t.Errorf("error %v, closed %v", err, w.closed)
	}
}

// A handle output that nobody wants any more ends its sender; messages are dropped.
func TestReceiversLeave(t *testing.T) {
	src := "stages: [probe: {id: give}, probe: {id: take}]"
	var sends int
	p := with(t, src, Options{}, func(s *fake) {
		if s.set.ID == "take" {
			m, h := NewIn[step]("steps"), NewIn[*weights]("weights")
			s.ports = []Port{m, h}
			s.run = func(ctx context.Context, s *fake) error {
				if _, err := h.Recv(ctx); err != nil {
					return err
				}
				m.Close()
				if _, err := m.Recv(ctx); err != io.EOF {
					return fmt.Errorf("receive after close: %w", err)
				}
				return nil
			}
			return
		}
		m, h := NewOut[step]("steps"), NewOut[*weights]("weights")
		s.ports = []Port{m, h}
		s.run = func(ctx context.Context, s *fake) error {
			for {
				if err := m.Send(ctx, step{}); err != nil {
					return err
				}
				if err := h.Send(ctx, &weights{}); err != nil {
					if _, ok := <-h.Done(); ok {
						return errors.New("Done is open")
					}
					return err
				}
				sends++
			}
		}
	})
	if _, err := p.Run(context.Background(), RunOptions{}); err != nil || sends != 1 {
		t.Errorf("error %v, %d handles sent, want one", err, sends)
	}
}

func TestUnconnectedOutputs(t *testing.T) {
	ctx := context.Background()
	if err := NewOut[step]("steps").Send(ctx, step{}); err != nil {
		t.Errorf("message: %v", err)
	}
	h := NewOut[*weights]("weights")
	if err := h.Send(ctx, &weights{}); err != ErrDone {
		t.Errorf("handle: %v", err)
	}
	select {
	case <-h.Done():
	default:
		t.Error("Done is open")
	}
	l := NewLend[*state]("state")
	if err := l.Lend(ctx, Moment{}, &state{}); err != nil || l.Wanted(Moment{}) {
		t.Errorf("lend: %v, wanted %v", err, l.Wanted(Moment{}))
	}
	if _, err := NewIn[step]("in").Recv(ctx); err != io.EOF {
		t.Errorf("input: %v", err)
	}
	if _, _, giveBack, err := NewBorrow[*state]("in", nil).Recv(ctx); err != io.EOF || giveBack == nil {
		t.Errorf("borrow: %v", err)
	}
}

// goChannels is Watermill's own in-process Pub/Sub as a Bus: it has no order.
type goChannels struct{ ps *gochannel.GoChannel }

func (g goChannels) Publisher() (message.Publisher, error)         { return g.ps, nil }
func (g goChannels) Subscriber(string) (message.Subscriber, error) { return g.ps, nil }
func (g goChannels) Close() error                                  { return g.ps.Close() }

// The edges keep order and count on a Pub/Sub that has neither backpressure nor order.
func TestOtherBus(t *testing.T) {
	var got []sample
	var events []string
	p := with(t, "stages: [dataset: {steps: 500}, latents, textembed, probe]", Options{}, collect(&got))
	_, err := p.Run(context.Background(), RunOptions{
		OnEvent: func(ev Event) { events = append(events, ev.Event) },
		Bus: func(_ *Env, log hclog.Logger) (Bus, error) {
			return goChannels{gochannel.NewGoChannel(gochannel.Config{}, bus.Logger(log))}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 500 {
		t.Fatalf("%d samples, want 500", len(got))
	}
	for i, s := range got {
		if want := (sample{i, "dataset+latent+text"}); s != want {
			t.Fatalf("sample %d is %v, want %v", i, s, want)
		}
	}
}
