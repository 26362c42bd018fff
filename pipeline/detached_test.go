package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// paper is a Line that has what it brings and notes what it is given.
type paper struct {
	items []sample

	mu    sync.Mutex
	taken int
	notes []string
}

func (p *paper) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

func (p *paper) Take(ctx context.Context, _ <-chan struct{}, port string) (Parcel, error) {
	if p.taken == len(p.items) {
		return Parcel{}, io.EOF
	}
	v := p.items[p.taken]
	p.taken++
	payload, err := Marshal(v)
	return Parcel{payload, func() { p.note("done %d", v.N) }, func() { p.note("kept %d", v.N) }}, err
}

func (p *paper) Put(_ context.Context, port string, payload []byte) error {
	var v sample
	if err := Unmarshal(payload, &v); err != nil {
		return err
	}
	p.note("%s %d %s", port, v.N, v.Text)
	return nil
}

func (p *paper) Emit(ev Event)                   { p.note("event %s", ev.Event) }
func (p *paper) SetAside(item, reason string)    { p.note("aside %s: %s", item, reason) }
func (p *paper) Summarise(key string, value any) { p.note("summary %s %v", key, value) }

// detached runs a stage made by build at the end of a Line and returns what it did.
func detached(t *testing.T, stop <-chan struct{}, build func(*fake), items ...sample) ([]string, error) {
	t.Helper()
	s := &fake{set: Settings{ID: "far", Log: hclog.NewNullLogger(), Env: &Env{}}}
	build(s)
	line := &paper{items: items}
	var wired []string
	for _, p := range s.ports {
		wired = append(wired, p.Name())
	}
	err := RunDetached(t.Context(), s.set, s, line, wired, stop)
	return line.notes, err
}

// What a stage does in a process of its own reaches the line in the order that
// exactly-once needs: what it sent for an item before it is done with the item.
func TestDetached(t *testing.T) {
	notes, err := detached(t, nil, func(s *fake) {
		in, out := NewIn[sample]("in"), NewOut[sample]("out")
		s.ports = []Port{in, out}
		s.close = func() error { s.set.Summarise("closed", true); return nil }
		s.run = func(ctx context.Context, s *fake) error {
			s.set.Progress(ctx, 1, 2, "images")
			return Each(ctx, s.set, in, func(ctx context.Context, v sample) error {
				if v.N == 2 {
					return Reject(errors.New("odd"))
				}
				return out.Send(ctx, sample{N: v.N * 10, Text: "x"})
			})
		}
	}, sample{N: 1}, sample{N: 2}, sample{N: 3})
	want := []string{"event progress", "out 10 x", "done 1", "aside sample 2: odd", "done 2", "out 30 x", "done 3", "summary closed true"}
	if err != nil || !slices.Equal(notes, want) {
		t.Errorf("error %v, got %q, want %q", err, notes, want)
	}
}

// Items taken by Recv are kept; a panic is an error, and so is a port that
// cannot lead out of the process.
func TestDetachedWithoutEach(t *testing.T) {
	notes, err := detached(t, nil, func(s *fake) {
		in := NewIn[sample]("in")
		s.ports = []Port{in}
		s.run = func(ctx context.Context, s *fake) error {
			for {
				if _, err := in.Recv(ctx); err != nil {
					panic(err)
				}
			}
		}
	}, sample{N: 1}, sample{N: 2})
	if want := []string{"kept 1", "kept 2"}; !errors.Is(err, io.EOF) || !slices.Equal(notes, want) {
		t.Errorf("error %v, got %q, want %q", err, notes, want)
	}
	if _, err := detached(t, nil, func(s *fake) { s.ports = []Port{NewOut[*fake]("fakes")} }); err == nil {
		t.Error("a handle led to another process")
	}
	stop := make(chan struct{})
	close(stop)
	if _, err := detached(t, stop, func(s *fake) {
		s.run = func(ctx context.Context, s *fake) error { <-s.set.Env.Stopping(); return ErrDone }
	}); err != nil {
		t.Errorf("stopped: %v", err)
	}
}

// A config that says every key is read back as it was.
func TestDecodeConfig(t *testing.T) {
	cfg := &fakeConfig{}
	if err := DecodeConfig([]byte("lr: 1e-2\nsizes: [64]\nnetwork: {rank: 3}\n"), cfg); err != nil || cfg.LR != 0.01 || cfg.Network.Rank != 3 || len(cfg.Sizes) != 1 {
		t.Errorf("got %+v, error %v", cfg, err)
	}
	if err := DecodeConfig([]byte("lr: much\nnothing: 1\n"), cfg); err == nil {
		t.Error("no error")
	}
}
