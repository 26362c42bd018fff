package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEventJSON(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)
	for _, c := range []struct {
		name string
		ev   Event
		want string
	}{
		{"flat, keys in order", Event{"validation", "train", at, map[string]any{"zero": 1.5, "loss": 0.25, "step": 10}},
			`{"event":"validation","stage":"train","time":"2026-03-01T12:00:00.0000005Z","loss":0.25,"step":10,"zero":1.5}`},
		{"of the run", Event{Event: "summary", Time: at}, `{"event":"summary","time":"2026-03-01T12:00:00.0000005Z"}`},
		{"numbers that JSON has not", Event{"step", "train", at, map[string]any{"a": math.NaN(), "b": math.Inf(1), "c": float32(math.Inf(-1)), "d": []any{math.NaN(), 1}, "e": map[string]any{"x": math.Inf(1)}}},
			`{"event":"step","stage":"train","time":"2026-03-01T12:00:00.0000005Z","a":"NaN","b":"+Inf","c":"-Inf","d":["NaN",1],"e":{"x":"+Inf"}}`},
		{"data does not hide the event", Event{"saved", "checkpoint", at, map[string]any{"event": "x", "stage": "y", "time": "z", "path": "a"}},
			`{"event":"saved","stage":"checkpoint","time":"2026-03-01T12:00:00.0000005Z","path":"a"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := json.Marshal(c.ev)
			if err != nil || string(got) != c.want {
				t.Errorf("got %s, %v\nwant %s", got, err, c.want)
			}
		})
	}
	if _, err := json.Marshal(Event{Event: "x", Data: map[string]any{"f": func() {}}}); err == nil || !strings.Contains(err.Error(), "event x: f:") {
		t.Errorf("error %v", err)
	}
}

func TestEventNumber(t *testing.T) {
	ev := Event{Data: map[string]any{"a": 1, "b": int64(2), "c": uint64(3), "d": float32(4), "e": 5.0, "f": "six"}}
	for key, want := range map[string]float64{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 0, "g": 0} {
		if got := ev.Number(key); got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}

// A meter tells the beginning, the end, and little between, whatever order it is
// told in.
func TestMeter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		p := with(t, "stages: [probe]", Options{}, func(s *fake) {
			s.run = func(ctx context.Context, s *fake) error {
				tell := s.set.Meter(ctx, "images")
				for _, done := range []int64{1, 2, 3} {
					tell(done, 9)
				}
				time.Sleep(meterPause)
				for _, done := range []int64{5, 4, 6, 9, 8, 9} {
					tell(done, 9)
				}
				tell(1, 4) // the next round
				open := s.set.Meter(ctx, "files")
				open(1, 0)
				open(2, 0)
				return nil
			}
		})
		if _, err := p.Run(context.Background(), RunOptions{OnEvent: func(ev Event) {
			got = append(got, fmt.Sprint(ev.Data["done"], " of ", ev.Data["total"], " ", ev.Data["unit"]))
		}}); err != nil {
			t.Fatal(err)
		}
		if want := "1 of 9 images, 5 of 9 images, 9 of 9 images, 1 of 4 images, 1 of 0 files"; strings.Join(got, ", ") != want {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// Observers see every event in order, the last ones included, however slow they
// are; an event that cannot be encoded fails nothing.
func TestEvents(t *testing.T) {
	var got []Event
	p := with(t, "stages: [probe]", Options{}, func(s *fake) {
		s.run = func(ctx context.Context, s *fake) error {
			for i := range 100 {
				s.set.Progress(ctx, i, 100, "images")
			}
			s.set.Env.Emit(ctx, Event{Event: "strange", Data: map[string]any{"f": func() {}}})
			s.set.Env.Emit(ctx, Event{Event: "step", Data: map[string]any{"loss": math.NaN(), "took": 1500 * time.Millisecond, "err": errors.New("e"), "n": 1 << 60, "list": []string{"a"}}})
			return errors.New("the run fails")
		}
		s.close = func() error {
			s.set.Env.Emit(context.Background(), Event{Event: "closed"})
			return nil
		}
	})
	_, err := p.Run(context.Background(), RunOptions{OnEvent: func(ev Event) {
		if len(got)%10 == 0 {
			time.Sleep(time.Millisecond)
		}
		got = append(got, ev)
	}})
	if err == nil {
		t.Fatal("no error")
	}
	if len(got) != 102 {
		t.Fatalf("%d events, want 102", len(got))
	}
	for i, ev := range got[:100] {
		if ev.Event != "progress" || ev.Stage != "probe" || fmt.Sprint(ev.Data["done"]) != fmt.Sprint(i) || ev.Time.IsZero() {
			t.Fatalf("event %d is %v", i, ev)
		}
	}
	last := got[100]
	if loss, ok := last.Data["loss"].(float64); !ok || !math.IsNaN(loss) {
		t.Errorf("loss %v", last.Data["loss"])
	}
	delete(last.Data, "loss")
	if diff := cmp.Diff(map[string]any{"took": 1.5, "err": "e", "n": int64(1 << 60), "list": []any{"a"}}, last.Data); diff != "" {
		t.Error(diff)
	}
	if got[101].Event != "closed" {
		t.Errorf("last event %v", got[101])
	}
}

type odd struct {
	Path  []byte
	Text  string
	F     float64
	G     float32
	Big   []int32
	Deep  map[string]any
	Fixed [4]byte
	U     uint64
	T     time.Time
}

// A message keeps every bit.
func TestCodec(t *testing.T) {
	in := odd{
		Path: []byte("caf\xe9.png"), Text: "caf\xe9", F: math.Float64frombits(0x7ff8_0000_dead_beef), G: float32(math.Inf(-1)),
		Big: make([]int32, 1<<20), Deep: map[string]any{"a": []any{int64(-1), map[string]any{"b": nil}}}, Fixed: [4]byte{1, 2}, U: math.MaxUint64,
		T: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
	}
	in.Big[1<<19] = 7
	b, err := encode(in)
	if err != nil {
		t.Fatal(err)
	}
	var out odd
	if err := decode(b, &out); err != nil {
		t.Fatal(err)
	}
	if math.Float64bits(in.F) != math.Float64bits(out.F) {
		t.Errorf("NaN %x became %x", math.Float64bits(in.F), math.Float64bits(out.F))
	}
	if !slices.Equal(in.Big, out.Big) {
		t.Error("a big list differs")
	}
	in.F, out.F, in.Big, out.Big = 0, 0, nil, nil
	if diff := cmp.Diff(in, out); diff != "" {
		t.Error(diff)
	}
	if err := decode([]byte{0xff}, &out); err == nil {
		t.Error("nonsense was decoded")
	}
	if _, err := encode(struct{ F func() }{func() {}}); err == nil {
		t.Error("a function was encoded")
	}
}

func TestZeroEnv(t *testing.T) {
	env := &Env{}
	ctx := context.Background()
	env.Emit(ctx, Event{Event: "x"})
	if env.Stopped() {
		t.Error("stopped")
	}
	env.rt.softStop()
	env.rt.softStop()
	if !env.Stopped() {
		t.Error("not stopped")
	}
}
