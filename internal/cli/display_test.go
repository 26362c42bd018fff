package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vbauerster/mpb/v8"
	"go.uber.org/goleak"

	"longship/pipeline"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// after makes an event of a stage, so many seconds after the start.
func after(seconds float64, event, stage string, data map[string]any) pipeline.Event {
	return pipeline.Event{Event: event, Stage: stage, Time: start.Add(time.Duration(seconds * float64(time.Second))), Data: data}
}

func progress(seconds float64, stage string, done, total int, unit string) pipeline.Event {
	return after(seconds, "progress", stage, map[string]any{"done": done, "total": total, "unit": unit})
}

func TestLines(t *testing.T) {
	step := func(seconds float64, n int) []pipeline.Event {
		return []pipeline.Event{
			after(seconds, "step", "train", map[string]any{"step": n, "loss": 0.5, "lr": 1e-4}),
			progress(seconds, "train", n, 300, "steps"),
		}
	}
	var training []pipeline.Event // of a run that goes on at step 100, ten steps a second
	for n := 101; n <= 300; n++ {
		training = append(training, step(float64(n-101)/10, n)...)
	}
	for name, c := range map[string]struct {
		events []pipeline.Event
		want   string
	}{
		"first, last, and every ten seconds between": {training, `
train: 101 of 300 steps, loss 0.5000, lr 0.0001
train: 201 of 300 steps, loss 0.5000, lr 0.0001, 10s left
train: 300 of 300 steps, loss 0.5000, lr 0.0001
`},
		"one that ends at once": {[]pipeline.Event{progress(0, "dataset", 5, 5, "images"), progress(1, "dataset", 5, 5, "images")}, `
dataset: 5 of 5 images
`},
		"where it stopped": {append(step(0, 1), step(1, 2)...), `
train: 1 of 300 steps, loss 0.5000, lr 0.0001
train: 2 of 300 steps, loss 0.5000, lr 0.0001
`},
		"two phases of a stage": {[]pipeline.Event{
			progress(0, "textembed", 0, 3<<20, "bytes of text encoder"), progress(0, "textembed", 3<<20, 3<<20, "bytes of text encoder"),
			progress(1, "textembed", 4, 4, "captions"),
		}, `
textembed: 0 B of 3.0 MiB of text encoder
textembed: 3.0 MiB of 3.0 MiB of text encoder
textembed: 4 of 4 captions
`},
		"no total": {[]pipeline.Event{progress(0, "latents", 7, 0, "images"), progress(1, "latents", 8, 0, "images")}, `
latents: 7 images
latents: 8 images
`},
		"told in words": {[]pipeline.Event{
			after(0, "validation", "train", map[string]any{"step": 4, "loss": 0.25, "zero": float32(1)}),
			after(1, "saved", "checkpoint", map[string]any{"step": 4, "file": "a.safetensors"}),
			after(2, "set_aside", "dataset", map[string]any{"item": "x.png", "reason": "in the log already"}),
		}, `
train: step 4, validation loss 0.2500 (predicting zero: 1.0000)
checkpoint: step 4, saved a.safetensors
`},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			l := newLines(&b)
			for _, ev := range c.events {
				l.event(ev)
			}
			for range 2 {
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			// where it stopped: Close says the time left by the clock
			got := regexp.MustCompile(`, \S+ left\n(\z)`).ReplaceAllString(b.String(), "\n")
			if got != c.want[1:] {
				t.Errorf("said\n%s\nwant\n%s", got, c.want[1:])
			}
		})
	}
}

func TestJSONLines(t *testing.T) {
	var out, log bytes.Buffer
	d := jsonLines{&out, &log}
	d.event(after(0, "step", "train", map[string]any{"loss": math.NaN()}))
	fmt.Fprintln(d, "a line of the log")
	var v map[string]any
	if err := json.Unmarshal(out.Bytes(), &v); err != nil || v["event"] != "step" || v["stage"] != "train" || v["loss"] != "NaN" {
		t.Errorf("%s: %v", out.String(), err)
	}
	if log.String() != "a line of the log\n" {
		t.Errorf("log %q", log.String())
	}
}

// screen is a terminal of unlimited height: it keeps what would be seen.
type screen struct {
	mu    sync.Mutex
	lines []string
	all   strings.Builder
}

var up = regexp.MustCompile(`^\x1b\[(\d+)A\x1b\[J`)

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.Write(b)
	rest := string(b)
	for rest != "" {
		if m := up.FindStringSubmatch(rest); m != nil {
			var n int
			fmt.Sscan(m[1], &n)
			s.lines = s.lines[:len(s.lines)-n]
			rest = rest[len(m[0]):]
			continue
		}
		line, more, whole := strings.Cut(rest, "\n")
		if !whole {
			panic(fmt.Sprintf("a torn line: %q", rest))
		}
		s.lines = append(s.lines, strings.TrimRight(line, " \r"))
		rest = more
	}
	return len(b), nil
}

// Bars and log lines share a terminal: no line is lost or torn, wherever the
// end falls, and a bar that is full stays as a line.
func TestBars(t *testing.T) {
	defer goleak.VerifyNone(t)
	for round := range 10 {
		s := &screen{}
		b := newBars(s, mpb.WithWidth(90), mpb.ForceTTY())
		var want []string
		var wg sync.WaitGroup
		for i := range 50 {
			line := fmt.Sprintf("[INFO]  line %d of the log", i)
			want = append(want, line)
			fmt.Fprintln(b, line)
			if i%10 == 0 {
				wg.Go(func() { b.event(progress(float64(i)/10, "latents", i, 40, "images")) })
			}
			b.event(after(float64(i)/10, "step", "train", map[string]any{"loss": 0.5, "lr": 1e-4}))
			b.event(progress(float64(i)/10, "train", i, 100, "steps"))
			time.Sleep(time.Duration(round) * time.Millisecond)
		}
		wg.Wait()
		b.event(progress(5, "latents", 40, 40, "images"))
		fmt.Fprintln(b, "the last line")
		for range 2 {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintln(b, "a line below the bars")
		b.event(progress(6, "train", 50, 100, "steps"))

		var logged []string
		for _, l := range s.lines {
			if strings.HasPrefix(l, "[INFO]") {
				logged = append(logged, l)
			}
		}
		if strings.Join(logged, "\n") != strings.Join(want, "\n") {
			t.Fatalf("round %d: logged %d lines of %d:\n%s", round, len(logged), len(want), strings.Join(s.lines, "\n"))
		}
		shown := strings.Join(s.lines, "\n")
		for _, w := range []string{
			`(?m)^latents +40 of 40 images +\[=+\] *100%`, `(?m)^train +49 of 100 steps +\[=+>-+\] *49% loss 0.5000, lr 0.0001 5s left$`,
			`(?m)^the last line$`, `a line below the bars$`,
		} {
			if n := len(regexp.MustCompile(w).FindAllString(shown, -1)); n != 1 {
				t.Fatalf("round %d: %q is shown %d times:\n%s", round, w, n, shown)
			}
		}
	}
}

// A terminal that goes away takes the bars with it, not the run.
func TestBarsOfATerminalThatGoesAway(t *testing.T) {
	defer goleak.VerifyNone(t)
	b := newBars(failing{}, mpb.WithWidth(90), mpb.ForceTTY())
	for i := range 20 {
		fmt.Fprintln(b, "a line")
		b.event(progress(float64(i), "train", i, 100, "steps"))
		time.Sleep(barRefresh / 10)
	}
	if err := b.Close(); err == nil {
		t.Error("no error")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, fmt.Errorf("gone") }
