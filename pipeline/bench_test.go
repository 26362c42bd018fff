package pipeline

import (
	"context"
	"testing"

	"github.com/hashicorp/go-hclog"

	"longship/pipeline/bus"
)

// bound returns an output and an input with an edge between them.
func bound[T any](b *testing.B, opts ...Option) (*Out[T], *In[T]) {
	b.Helper()
	out, in := NewOut[T]("out", opts...), NewIn[T]("in")
	bus := bus.New(hclog.NewNullLogger())
	b.Cleanup(func() { bus.Close() })
	if err := out.bind(link{ctx: context.Background(), bus: bus, from: "a.out", to: "b.in"}, in); err != nil {
		b.Fatal(err)
	}
	return out, in
}

// about900 is a message about as large as a sample.
func about900() sample { return sample{N: 1, Text: string(make([]byte, 900))} }

// BenchmarkMessageHop is one message from Send to Recv: encode, Watermill, decode.
func BenchmarkMessageHop(b *testing.B) {
	out, in := bound[sample](b)
	ctx, v := context.Background(), about900()
	b.ReportAllocs()
	for b.Loop() {
		if err := out.Send(ctx, v); err != nil {
			b.Fatal(err)
		}
		if _, err := in.Recv(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEach is BenchmarkMessageHop through the middleware of Each.
func BenchmarkEach(b *testing.B) {
	out, in := bound[sample](b)
	set := Settings{ID: "bench", Log: hclog.NewNullLogger(), Env: &Env{}}
	ctx, v := context.Background(), about900()
	next, done := make(chan struct{}), make(chan error)
	go func() {
		done <- Each(ctx, set, in, func(context.Context, sample) error { next <- struct{}{}; return nil })
	}()
	b.ReportAllocs()
	for b.Loop() {
		if err := out.Send(ctx, v); err != nil {
			b.Fatal(err)
		}
		<-next
	}
	if err := out.finish(ctx); err != nil {
		b.Fatal(err)
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkHandleHop is one handle from Send to Recv between two goroutines.
func BenchmarkHandleHop(b *testing.B) {
	out, in := bound[*batch](b)
	ctx, v := context.Background(), &batch{}
	go func() {
		for out.Send(ctx, v) == nil {
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := in.Recv(ctx); err != nil {
			b.Fatal(err)
		}
	}
	in.Close()
}

// BenchmarkLoan is one loan, lent and given back.
func BenchmarkLoan(b *testing.B) {
	lent := NewLend[*state]("state")
	borrowed := NewBorrow[*state]("state", func(Moment) bool { return true })
	if err := lent.bind(link{stage: "b"}, borrowed); err != nil {
		b.Fatal(err)
	}
	ctx, v := context.Background(), &state{}
	go func() {
		for {
			_, _, giveBack, err := borrowed.Recv(ctx)
			if err != nil {
				return
			}
			giveBack(nil)
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		if err := lent.Lend(ctx, Moment{}, v); err != nil {
			b.Fatal(err)
		}
	}
	if err := lent.finish(ctx); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkParse is the stock pipeline read and checked.
func BenchmarkParse(b *testing.B) {
	reg := stock(b)
	b.SetBytes(int64(len(full)))
	for b.Loop() {
		if _, err := reg.Parse([]byte(full), Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
