package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// eachOver runs fn over n samples with Each and returns the run's outcome.
func eachOver(t *testing.T, n int, fn func(ctx context.Context, v sample) error) (*Result, error) {
	t.Helper()
	p := with(t, fmt.Sprintf("stages: [dataset: {steps: %d}, probe]", n), Options{}, func(s *fake) {
		in := NewIn[sample]("samples")
		s.ports = []Port{in}
		s.run = func(ctx context.Context, s *fake) error { return Each(ctx, s.set, in, fn) }
	})
	return p.Run(context.Background(), RunOptions{})
}

func TestEachRetries(t *testing.T) {
	cause := errors.New("connection reset")
	synctest.Test(t, func(t *testing.T) {
		tries := map[int]int{}
		start := time.Now()
		_, err := eachOver(t, 4, func(_ context.Context, v sample) error {
			tries[v.N]++
			if v.N == 2 && tries[2] < 4 {
				return fmt.Errorf("read x.png: %w", Retryable(cause))
			}
			return nil
		})
		if err != nil || tries[1] != 1 || tries[2] != 4 || tries[3] != 1 {
			t.Errorf("error %v, tries %v", err, tries)
		}
		if took := time.Since(start); took != 2100*time.Millisecond {
			t.Errorf("waited %v, want 0.1 + 0.4 + 1.6 s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		_, err := eachOver(t, 1, func(context.Context, sample) error { tries++; return Retryable(cause) })
		if !errors.Is(err, cause) || err.Error() != "stage probe: sample 1: connection reset" || tries != 1+maxRetries {
			t.Errorf("error %v after %d tries", err, tries)
		}
	})
}

func TestRetryable(t *testing.T) {
	for _, err := range []error{fs.ErrNotExist, &fs.PathError{Op: "open", Path: "x", Err: syscall.EACCES}, syscall.ENOSPC, context.Canceled} {
		if got := Retryable(err); isA[*retryable](got) || got != err {
			t.Errorf("Retryable(%v) is tried again", err)
		}
	}
	if Retryable(nil) != nil || Reject(nil) != nil {
		t.Error("nil became an error")
	}
	if !isA[*retryable](fmt.Errorf("read: %w", Retryable(syscall.EIO))) {
		t.Error("an I/O error is not tried again")
	}
}

func TestEachRejects(t *testing.T) {
	var seen []int
	res, err := eachOver(t, 6, func(_ context.Context, v sample) error {
		if v.N%2 == 1 {
			return fmt.Errorf("photo %d: %w", v.N, Reject(errors.New("it is cut short")))
		}
		seen = append(seen, v.N)
		return nil
	})
	if err != nil || fmt.Sprint(seen) != "[0 2 4]" {
		t.Errorf("error %v, seen %v", err, seen)
	}
	want := "[{probe sample 2 photo 1: it is cut short} {probe sample 4 photo 3: it is cut short} {probe sample 6 photo 5: it is cut short}]"
	if got := fmt.Sprint(res.SetAside); got != want {
		t.Errorf("set aside %s, want %s", got, want)
	}
}

func TestEachFails(t *testing.T) {
	cause := errors.New("out of memory")
	calls := 0
	_, err := eachOver(t, 6, func(_ context.Context, v sample) error {
		if calls++; v.N == 3 {
			return cause
		}
		return nil
	})
	if !errors.Is(err, cause) || err.Error() != "stage probe: sample 4: out of memory" || calls != 4 {
		t.Errorf("error %v after %d calls", err, calls)
	}
}

type named struct{ File string }

func (named) MessageType() string { return "named" }
func (n named) ItemName() string  { return n.File }

func TestItemName(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{{named{"x.png"}, "x.png"}, {sample{}, "sample 3"}, {&weights{}, "boxes 3"}} {
		if got := itemName(c.v, &port{name: "boxes"}, 3); got != c.want {
			t.Errorf("%T is called %q, want %q", c.v, got, c.want)
		}
	}
}

// A handle that comes when the run is to stop is closed, whether Each had taken
// it or not.
func TestEachClosesWhatItWillNotUse(t *testing.T) {
	for range 20 {
		signals := make(chan os.Signal, 1)
		sent, w := make(chan struct{}), &weights{}
		p := with(t, "stages: [probe, probe: {id: reader}]", Options{}, func(s *fake) {
			in, out := NewIn[*weights]("weights", Optional()), NewOut[*weights]("more", Capacity(1))
			s.ports = []Port{in, out}
			s.run = func(ctx context.Context, s *fake) error {
				if s.set.ID == "probe" {
					defer close(sent)
					return out.Send(ctx, w)
				}
				<-sent
				signals <- os.Interrupt
				<-s.set.Env.Stopping()
				return Each(ctx, s.set, in, func(context.Context, *weights) error { return errors.New("too late") })
			}
		})
		if _, err := p.Run(context.Background(), RunOptions{Signals: signals}); err != ErrInterrupted || !w.closed {
			t.Fatalf("error %v, closed %v", err, w.closed)
		}
	}
}

// Each works over handles too, and an output that nobody wants ends it.
func TestEachOverHandles(t *testing.T) {
	p := with(t, "stages: [quantize, probe]", Options{}, func(s *fake) {
		in, out := NewIn[*weights]("weights"), NewOut[*batch]("batches")
		s.ports = []Port{in, out}
		s.run = func(ctx context.Context, s *fake) error {
			return Each(ctx, s.set, in, func(ctx context.Context, w *weights) error { return out.Send(ctx, &batch{}) })
		}
	})
	if _, err := p.Run(context.Background(), RunOptions{}); err != nil {
		t.Error(err)
	}
}
