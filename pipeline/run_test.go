package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/hashicorp/go-hclog"

	"longship/pipeline/bus"
)

func TestRun(t *testing.T) {
	p := mustParse(t, full)
	res, err := p.Run(context.Background(), RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range res.Summary {
		got = append(got, fmt.Sprint(e.Stage, " ", e.Key, " ", e.Value))
	}
	slices.Sort(got)
	want := []string{"checkpoint saved 1010", "checkpoint saved 1212", "checkpoint saved 505", "report steps 12"}
	if !slices.Equal(got, want) {
		t.Errorf("summary %q, want %q", got, want)
	}
	if res.Name != "p" || res.Interrupted || res.Duration <= 0 || len(res.SetAside) != 0 {
		t.Errorf("result %+v", res)
	}
	if _, err := p.Run(context.Background(), RunOptions{}); err == nil || !strings.Contains(err.Error(), "has run already") {
		t.Errorf("second run: %v", err)
	}
}

// with adds a stage named probe to the stock ones.
func with(t testing.TB, src string, opts Options, build func(s *fake)) *Pipeline {
	t.Helper()
	reg, err := NewRegistry(append(stockFactories(), fakeFactory("probe", build))...)
	if err != nil {
		t.Fatal(err)
	}
	opts.Dir, opts.File = t.TempDir(), "p.yaml"
	p, err := reg.Parse([]byte(src), opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// collect is the build of a probe that keeps what it receives.
func collect(into *[]sample) func(*fake) {
	return func(s *fake) {
		in := NewIn[sample]("samples")
		s.ports = []Port{in}
		s.run = func(ctx context.Context, s *fake) error {
			for {
				v, err := in.Recv(ctx)
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
				*into = append(*into, v)
			}
		}
	}
}

func TestMergeKeepsOrder(t *testing.T) {
	var got []sample
	p := with(t, `
stages:
  - dataset: {id: a, steps: 300}
  - dataset: {id: b, steps: 200}
  - latents: {in: a}
  - probe: {in: [b, latents]}
`, Options{}, collect(&got))
	if _, err := p.Run(context.Background(), RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 500 {
		t.Fatalf("%d samples, want 500", len(got))
	}
	for i, s := range got {
		want := sample{i, "b"}
		if i >= 200 {
			want = sample{i - 200, "a+latent"}
		}
		if s != want {
			t.Fatalf("sample %d is %v, want %v", i, s, want)
		}
	}
}

func TestFirstError(t *testing.T) {
	cause := errors.New("disk on fire")
	var log bytes.Buffer
	logger := hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Debug})
	for _, c := range []struct {
		name string
		run  func(ctx context.Context, s *fake) error
		want string
	}{
		{"error", func(context.Context, *fake) error { return fmt.Errorf("read x.png: %w", cause) }, "stage probe: read x.png: disk on fire"},
		{"panic", func(context.Context, *fake) error { panic(cause) }, "stage probe: panic: disk on fire"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := with(t, "stages: [dataset, probe, latents, textembed, quantize, prefetch, train, checkpoint, report]", Options{Log: logger}, func(s *fake) {
				in := NewIn[sample]("in")
				out := NewOut[sample]("out")
				s.ports, s.run = []Port{in, out}, c.run
			})
			_, err := p.Run(context.Background(), RunOptions{})
			var se *StageError
			if !errors.As(err, &se) || se.Stage != "probe" || !errors.Is(err, cause) || err.Error() != c.want {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if !strings.Contains(log.String(), "run_test.go") {
		t.Error("the stack of the panic is not in the log")
	}
}

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

// recorder is a shared resource that notes when it is closed.
type recorder struct {
	name string
	log  *[]string
	err  error
}

func (r recorder) Close() error {
	*r.log = append(*r.log, r.name)
	return r.err
}

func TestCloseOrder(t *testing.T) {
	cause := errors.New("cannot unmap")
	for _, fails := range []bool{false, true} {
		var log []string
		build := func(s *fake) {
			s.run = func(ctx context.Context, s *fake) error {
				if s.set.ID != "probe" {
					return nil
				}
				for _, key := range []string{"card", "store"} {
					if _, err := Shared(ctx, s.set.Env, key, func(context.Context) (recorder, error) { return recorder{key, &log, nil}, nil }); err != nil {
						return err
					}
				}
				if fails {
					return errors.New("fails")
				}
				return nil
			}
			s.close = func() error {
				log = append(log, s.set.ID)
				if s.set.ID == "second" {
					return cause
				}
				return nil
			}
		}
		p := with(t, "stages: [probe, probe: {id: second}, probe: {id: third}]", Options{}, build)
		_, err := p.Run(context.Background(), RunOptions{})
		if want := []string{"third", "second", "probe", "store", "card"}; !slices.Equal(log, want) {
			t.Errorf("closed %v, want %v", log, want)
		}
		if fails && err.Error() != "stage probe: fails" {
			t.Errorf("error %v", err)
		}
		if !fails && (!errors.Is(err, cause) || err.Error() != "stage second: close: cannot unmap") {
			t.Errorf("error %v", err)
		}
	}
}

func TestShared(t *testing.T) {
	env := &Env{}
	ctx := context.Background()
	cause := errors.New("locked")
	opens := 0
	open := func(context.Context) (int, error) {
		opens++
		if opens == 1 {
			return 0, cause
		}
		return opens, nil
	}
	if _, err := Shared(ctx, env, "k", open); err != cause {
		t.Errorf("error %v", err)
	}
	for range 2 {
		if v, err := Shared(ctx, env, "k", open); v != 2 || err != nil {
			t.Errorf("got %v, %v: a failed open must not be remembered, a good one must", v, err)
		}
	}
	// Those who come while it opens wait, or leave with their context.
	started, release := make(chan struct{}), make(chan struct{})
	results := make(chan int)
	go func() {
		v, _ := Shared(ctx, env, "slow", func(context.Context) (int, error) { close(started); <-release; return 7, nil })
		results <- v
	}()
	<-started
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Shared(gone, env, "slow", open); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	go func() {
		v, _ := Shared(ctx, env, "slow", func(context.Context) (int, error) { return 8, nil })
		results <- v
	}()
	close(release)
	if a, b := <-results, <-results; a != 7 || b != 7 {
		t.Errorf("got %d and %d, want one value for both", a, b)
	}
	if err := env.Close(); err != nil {
		t.Error(err)
	}
}

func TestStop(t *testing.T) {
	t.Run("one signal", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			signals := make(chan os.Signal, 2)
			var done int
			p := with(t, "stages: [dataset: {steps: 100}, probe]", Options{}, func(s *fake) {
				in := NewIn[sample]("samples")
				s.ports = []Port{in}
				s.run = func(ctx context.Context, s *fake) error {
					return Each(ctx, s.set, in, func(ctx context.Context, v sample) error {
						if v.N == 4 {
							signals <- os.Interrupt
							time.Sleep(time.Second)
						}
						if ctx.Err() != nil {
							return ctx.Err()
						}
						done++
						return nil
					})
				}
			})
			res, err := p.Run(context.Background(), RunOptions{Signals: signals})
			if err != ErrInterrupted || !res.Interrupted || done != 5 {
				t.Errorf("error %v, interrupted %v, %d done; want the item in hand finished and no more", err, res.Interrupted, done)
			}
		})
	})
	t.Run("two signals", func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		p := with(t, "stages: [probe]", Options{}, func(s *fake) {
			s.run = func(ctx context.Context, s *fake) error {
				signals <- os.Interrupt
				<-s.set.Env.Stopping()
				signals <- os.Interrupt
				<-ctx.Done()
				return fmt.Errorf("step 3: %w", ctx.Err())
			}
		})
		if _, err := p.Run(context.Background(), RunOptions{Signals: signals}); !errors.Is(err, ErrInterrupted) || err.Error() != "interrupted by a second signal" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		p := with(t, "stages: [dataset: {steps: 3}, latents, probe]", Options{}, func(s *fake) {
			in := NewIn[sample]("samples")
			s.ports = []Port{in}
			s.run = func(ctx context.Context, s *fake) error {
				cancel()
				<-ctx.Done()
				_, err := in.Recv(ctx)
				if err == nil {
					err = ctx.Err()
				}
				return err
			}
		})
		if _, err := p.Run(ctx, RunOptions{}); err != context.Canceled {
			t.Errorf("error %v", err)
		}
	})
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

func TestBusFailures(t *testing.T) {
	cause := errors.New("no route")
	p := mustParse(t, full)
	_, err := p.Run(context.Background(), RunOptions{Bus: func(*Env, hclog.Logger) (Bus, error) { return nil, cause }})
	if !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
}
