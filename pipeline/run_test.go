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

	"github.com/hashicorp/go-hclog"
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
	t.Run("what is not worth finishing", func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		p := with(t, "stages: [probe]", Options{}, func(s *fake) {
			s.run = func(ctx context.Context, s *fake) error {
				wait, cancel := s.set.Env.UntilStopped(ctx)
				defer cancel()
				signals <- os.Interrupt
				<-wait.Done()
				if cause := context.Cause(wait); cause != ErrInterrupted || ctx.Err() != nil {
					t.Errorf("cause %v, the run's context %v", cause, ctx.Err())
				}
				return fmt.Errorf("load weights: %w", wait.Err())
			}
		})
		if _, err := p.Run(context.Background(), RunOptions{Signals: signals}); err != ErrInterrupted {
			t.Errorf("error %v", err)
		}
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

func TestBusFailures(t *testing.T) {
	cause := errors.New("no route")
	p := mustParse(t, full)
	_, err := p.Run(context.Background(), RunOptions{Bus: func(*Env, hclog.Logger) (Bus, error) { return nil, cause }})
	if !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
}
