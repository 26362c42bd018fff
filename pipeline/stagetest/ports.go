package stagetest

import (
	"context"
	"errors"
	"io"

	"longship/pipeline"
)

// helperConfig is the config of the stages around the one under test.
type helperConfig struct {
	Adds []string `yaml:"adds"`
}

// helper makes the factory of such a stage.
func helper(typ string, build func(*helperConfig) (pipeline.Port, func(context.Context) error)) pipeline.Factory {
	return pipeline.Factory{
		Type: typ, Summary: "part of a test",
		Default: func() any { return &helperConfig{} },
		New: func(_ pipeline.Settings, cfg any) (pipeline.Stage, error) {
			port, run := build(cfg.(*helperConfig))
			return &helperStage{[]pipeline.Port{port}, run}, nil
		},
	}
}

type helperStage struct {
	ports []pipeline.Port
	run   func(context.Context) error
}

func (s *helperStage) Ports() []pipeline.Port        { return s.ports }
func (s *helperStage) Run(ctx context.Context) error { return s.run(ctx) }

// Feed sends values to an input of the stage, then ends it. They carry whatever
// the input needs.
func Feed[T any](port string, values ...T) Option {
	return FeedFunc(port, func(_ context.Context, send func(T) error) error {
		for _, v := range values {
			if err := send(v); err != nil {
				return err
			}
		}
		return nil
	})
}

// FeedFunc lets feed send values to an input of the stage; the input ends when
// feed returns.
func FeedFunc[T any](port string, feed func(ctx context.Context, send func(T) error) error) Option {
	return optionFunc(func(h *harness) {
		h.feeders[port] = helper("feed_"+port, func(cfg *helperConfig) (pipeline.Port, func(context.Context) error) {
			out := pipeline.NewOut[T]("out", pipeline.Adds(cfg.Adds...))
			return out, func(ctx context.Context) error {
				return feed(ctx, func(v T) error { return out.Send(ctx, v) })
			}
		})
	})
}

// Collector is the option that collects an output; Collect makes it.
type Collector[T any] struct {
	Values []T // what was sent, in order; read it when the run is over
	port   string
	each   func(T) error
}

// Collect collects what the stage sends to an output.
func Collect[T any](port string) *Collector[T] { return &Collector[T]{port: port} }

// Each calls fn for every value as it comes; an error ends the run.
func (c *Collector[T]) Each(fn func(T) error) *Collector[T] {
	c.each = fn
	return c
}

func (c *Collector[T]) apply(h *harness) {
	h.takers[c.port] = helper("collect_"+c.port, func(*helperConfig) (pipeline.Port, func(context.Context) error) {
		in := pipeline.NewIn[T]("in")
		return in, func(ctx context.Context) error {
			for {
				v, err := in.Recv(ctx)
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				c.Values = append(c.Values, v)
				if c.each != nil {
					if err := c.each(v); err != nil {
						return err
					}
				}
			}
		}
	})
}

// Loan is a value to lend and when.
type Loan[T any] struct {
	At    pipeline.Moment
	Value T
}

// Lend lends to a borrowing input of the stage, loan after loan.
func Lend[T any](port string, loans ...Loan[T]) Option {
	return optionFunc(func(h *harness) {
		h.feeders[port] = helper("lend_"+port, func(*helperConfig) (pipeline.Port, func(context.Context) error) {
			out := pipeline.NewLend[T]("out")
			return out, func(ctx context.Context) error {
				for _, l := range loans {
					if err := out.Lend(ctx, l.At, l.Value); err != nil {
						return err
					}
				}
				return nil
			}
		})
	})
}

// BorrowAt borrows from a lending output of the stage at the moments that want
// accepts; use has the value until it returns, and its error is given back.
func BorrowAt[T any](port string, want func(pipeline.Moment) bool, use func(v T, at pipeline.Moment) error) Option {
	return optionFunc(func(h *harness) {
		h.takers[port] = helper("borrow_"+port, func(*helperConfig) (pipeline.Port, func(context.Context) error) {
			in := pipeline.NewBorrow[T]("in", want)
			return in, func(ctx context.Context) error {
				for {
					v, at, giveBack, err := in.Recv(ctx)
					if errors.Is(err, io.EOF) {
						return nil
					}
					if err != nil {
						return err
					}
					giveBack(use(v, at))
				}
			}
		})
	})
}
