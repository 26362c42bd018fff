package pipeline

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// The stages of these tests have the shape of the stock ones.

type sample struct {
	N    int    `cbor:"n"`
	Text string `cbor:"text"`
}

func (sample) MessageType() string { return "sample" }

type step struct{ Loss float64 }

func (step) MessageType() string { return "step" }

type (
	weights struct{ closed bool }
	batch   struct{ samples []sample }
	state   struct{ step int }
)

func (w *weights) Close() error {
	w.closed = true
	return nil
}

type network struct {
	Type string `yaml:"type"`
	Rank int    `yaml:"rank"`
}

type fakeConfig struct {
	Folder  Path              `yaml:"folder" doc:"where the images are"`
	Cache   Path              `yaml:"cache"`
	Sizes   []int             `yaml:"sizes"`
	LR      float64           `yaml:"lr" doc:"learning rate"`
	Steps   int               `yaml:"steps"`
	Fused   bool              `yaml:"fused"`
	Network network           `yaml:"network"`
	Extra   map[string]string `yaml:"extra"`
	Ratio   *float32          `yaml:"ratio"`
	Small   uint8             `yaml:"small"`
	Any     any               `yaml:"any"`
}

func (c *fakeConfig) Validate() error {
	var errs []error
	if c.Network.Rank < 0 {
		errs = append(errs, &FieldError{Path: "network.rank", Msg: "must be at least 0"})
	}
	for i, s := range c.Sizes {
		if s%16 != 0 {
			errs = append(errs, &FieldError{Path: "sizes[" + string(rune('0'+i)) + "]", Msg: "must be a multiple of 16"})
		}
	}
	return errors.Join(errs...)
}

// fake is a stage made of its ports and a function.
type fake struct {
	set   Settings
	cfg   *fakeConfig
	ports []Port
	run   func(ctx context.Context, s *fake) error
	close func() error
}

func (s *fake) Ports() []Port { return s.ports }

func (s *fake) Run(ctx context.Context) error {
	if s.run == nil {
		return nil
	}
	return s.run(ctx, s)
}

func (s *fake) Close() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

// fakeFactory makes fakes; build fills in the ports and the function.
func fakeFactory(typ string, build func(s *fake)) Factory {
	return Factory{
		Type: typ, Summary: "a fake " + typ,
		Default: func() any {
			return &fakeConfig{LR: 1e-3, Steps: 10, Cache: "cache", Sizes: []int{256}, Network: network{"lora", 16}}
		},
		New: func(set Settings, cfg any) (Stage, error) {
			s := &fake{set: set, cfg: cfg.(*fakeConfig)}
			build(s)
			return s, nil
		},
	}
}

// stock has the shape of the stock pipeline: each stage works as simply as it can.
func stock(t testing.TB) *Registry {
	t.Helper()
	reg, err := NewRegistry(stockFactories()...)
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

func stockFactories() []Factory {
	enrich := func(typ, adds string) Factory {
		return fakeFactory(typ, func(s *fake) {
			in := NewIn[sample]("samples")
			out := NewOut[sample]("samples_out", Forwards(in), Adds(adds))
			s.ports = []Port{in, out}
			s.run = func(ctx context.Context, s *fake) error {
				return Each(ctx, s.set, in, func(ctx context.Context, v sample) error {
					v.Text += "+" + adds
					return out.Send(ctx, v)
				})
			}
		})
	}
	return []Factory{
		fakeFactory("dataset", func(s *fake) {
			out := NewOut[sample]("samples")
			s.ports = []Port{out}
			s.run = func(ctx context.Context, s *fake) error {
				for i := range s.cfg.Steps {
					if err := out.Send(ctx, sample{i, s.set.ID}); err != nil {
						return err
					}
				}
				return nil
			}
		}),
		enrich("latents", "latent"),
		enrich("textembed", "text"),
		fakeFactory("quantize", func(s *fake) {
			out := NewOut[*weights]("weights")
			s.ports = []Port{out}
			s.run = func(ctx context.Context, s *fake) error { return out.Send(ctx, &weights{}) }
		}),
		fakeFactory("prefetch", func(s *fake) {
			in, w := NewIn[sample]("samples", Needs("latent", "text")), NewIn[*weights]("weights")
			out := NewOut[*batch]("batches")
			s.ports = []Port{in, w, out}
			s.run = func(ctx context.Context, s *fake) error {
				b := &batch{}
				for {
					v, err := in.Recv(ctx)
					if err == io.EOF {
						break
					}
					if err != nil {
						return err
					}
					b.samples = append(b.samples, v)
				}
				if _, err := w.Recv(ctx); err != nil {
					return err
				}
				for {
					if err := out.Send(ctx, b); err != nil {
						return err
					}
				}
			}
		}),
		fakeFactory("train", func(s *fake) {
			in := NewIn[*batch]("batches", Single())
			steps, lent := NewOut[step]("steps"), NewLend[*state]("state")
			s.ports = []Port{in, steps, lent}
			s.run = func(ctx context.Context, s *fake) error {
				for i := 1; i <= s.cfg.Steps; i++ {
					if _, err := in.Recv(ctx); err != nil {
						return err
					}
					if err := steps.Send(ctx, step{1 / float64(i)}); err != nil {
						return err
					}
					if err := lent.Lend(ctx, Moment{Step: i, Last: i == s.cfg.Steps}, &state{i}); err != nil {
						return err
					}
				}
				return nil
			}
		}),
		fakeFactory("checkpoint", func(s *fake) {
			lent := NewBorrow[*state]("state", func(at Moment) bool { return at.Last || at.Step%5 == 0 })
			s.ports = []Port{lent}
			s.run = func(ctx context.Context, s *fake) error {
				for {
					v, at, giveBack, err := lent.Recv(ctx)
					if err == io.EOF {
						return nil
					}
					if err != nil {
						return err
					}
					s.set.Summarise("saved", v.step*100+at.Step)
					giveBack(nil)
				}
			}
		}),
		fakeFactory("report", func(s *fake) {
			in := NewIn[step]("steps")
			s.ports = []Port{in}
			s.run = func(ctx context.Context, s *fake) error {
				n := 0
				err := Each(ctx, s.set, in, func(context.Context, step) error { n++; return nil })
				s.set.Summarise("steps", n)
				return err
			}
		}),
	}
}

// full is the stock pipeline.
const full = `
stages:
  - dataset: {folder: ./photos}
  - latents
  - textembed
  - quantize
  - prefetch
  - train: {steps: 12}
  - checkpoint
  - report
`

// parse parses src with the stock stages; the file is called p.yaml.
func parse(t testing.TB, src string, set ...string) (*Pipeline, error) {
	t.Helper()
	return stock(t).Parse([]byte(src), Options{File: "p.yaml", Dir: t.TempDir(), Set: set, Log: hclog.NewNullLogger(),
		Getenv: func(name string) (string, bool) {
			v, ok := map[string]string{"STEPS": "77", "NAME": "env name", "EMPTY": "", "HOME": "/home/u", "COLON": "a: b"}[name]
			return v, ok
		}})
}

func mustParse(t testing.TB, src string, set ...string) *Pipeline {
	t.Helper()
	p, err := parse(t, src, set...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// config returns the config of a stage.
func config(t testing.TB, p *Pipeline, id string) *fakeConfig {
	t.Helper()
	for _, n := range p.nodes {
		if n.id == id {
			return n.cfg.(*fakeConfig)
		}
	}
	t.Fatalf("no stage %s", id)
	return nil
}

// wantFaults checks that err has exactly the faults, each given by its place and
// a part of its message: "p.yaml:3:5: unknown key".
func wantFaults(t *testing.T, err error, want ...string) {
	t.Helper()
	var ce *ConfigError
	if !errors.As(err, &ce) {
		t.Fatalf("error %v, want a ConfigError", err)
	}
	for i, f := range ce.Faults {
		place, part := "", ""
		if i < len(want) {
			place, part, _ = strings.Cut(want[i], ": ")
		}
		if f.Place.String() != place || !strings.Contains(f.Msg, part) {
			t.Errorf("fault %d is %q, want %q … %q", i, f, place, part)
		}
	}
	if len(ce.Faults) < len(want) {
		t.Errorf("%d faults, want also %q", len(ce.Faults), want[len(ce.Faults):])
	}
}
