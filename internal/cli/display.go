package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"longship/pipeline"
)

// display shows a run's events while it goes on: as bars on a terminal, as
// plain lines elsewhere, or as JSON lines. It is also where the log is written,
// so that a log line never tears a bar.
type display struct {
	json io.Writer     // events as JSON lines; nil otherwise
	bars *mpb.Progress // on a terminal
	text io.Writer     // log lines, and progress lines where there are no bars

	mu     sync.Mutex
	closed bool
	stages map[string]*stageView
}

// stageView is what is shown of one stage.
type stageView struct {
	bar   *mpb.Bar
	note  string // the last loss
	said  time.Time
	start time.Time
	done  int
}

// linePause is how often a stage's progress is said where there are no bars.
const linePause = 10 * time.Second

func (a *app) newDisplay(asJSON bool) *display {
	d := &display{text: a.err, stages: map[string]*stageView{}}
	switch {
	case asJSON:
		d.json = a.out
	case isTerminal(a.err):
		d.bars = mpb.New(mpb.WithOutput(a.err), mpb.WithAutoRefresh(), mpb.WithRefreshRate(200*time.Millisecond))
		d.text = d.bars
	}
	return d
}

// Write writes log lines.
func (d *display) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(b)
}

func (d *display) event(ev pipeline.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.json != nil {
		if b, err := json.Marshal(ev); err == nil {
			fmt.Fprintf(d.json, "%s\n", b)
		}
		return
	}
	switch ev.Event {
	case "progress":
		unit, _ := ev.Data["unit"].(string)
		d.progress(ev.Stage, int(number(ev.Data["done"])), int(number(ev.Data["total"])), unit)
	case "step":
		d.view(ev.Stage).note = fmt.Sprintf("loss %.4f  lr %.2g", number(ev.Data["loss"]), number(ev.Data["lr"]))
	case "validation":
		fmt.Fprintf(d.text, "step %d: validation loss %.4f (predicting zero: %.4f)\n", int(number(ev.Data["step"])), number(ev.Data["loss"]), number(ev.Data["zero"]))
	case "set_aside":
		fmt.Fprintf(d.text, "%s: set aside %v: %v\n", ev.Stage, ev.Data["item"], ev.Data["reason"])
	case "saved":
		fmt.Fprintf(d.text, "saved %v\n", ev.Data["file"])
	}
}

func (d *display) view(stage string) *stageView {
	v := d.stages[stage]
	if v == nil {
		v = &stageView{start: time.Now()}
		d.stages[stage] = v
	}
	return v
}

func (d *display) progress(stage string, done, total int, unit string) {
	v := d.view(stage)
	if d.bars != nil && !d.closed {
		if v.bar == nil {
			v.bar = d.bars.AddBar(int64(total),
				mpb.PrependDecorators(decor.Name(stage, decor.WCSyncSpaceR), decor.CountersNoUnit("%d / %d "+unit, decor.WCSyncSpaceR)),
				mpb.AppendDecorators(decor.Any(func(decor.Statistics) string { return v.note }, decor.WCSyncSpaceR),
					decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpaceR), "done")))
		}
		v.bar.SetTotal(int64(total), false)
		v.bar.SetCurrent(int64(done))
		if total > 0 && done >= total {
			v.bar.SetTotal(int64(total), true)
		}
		return
	}
	first := v.done == 0
	v.done = done
	last := total > 0 && done >= total
	if !last && time.Since(v.said) < linePause && !first {
		return
	}
	v.said = time.Now()
	fmt.Fprintln(d.text, line(stage, done, total, unit, v.note, eta(time.Since(v.start), done, total)))
}

func line(stage string, done, total int, unit, note, eta string) string {
	s := fmt.Sprintf("%s: %d", stage, done)
	if total > 0 {
		s += fmt.Sprintf(" of %d", total)
	}
	s += " " + unit
	if note != "" {
		s += "  " + note
	}
	if eta != "" {
		s += "  " + eta + " left"
	}
	return s
}

// eta guesses the time left from the time taken, "" where there is no ground.
func eta(taken time.Duration, done, total int) string {
	if done <= 0 || total <= done || taken < time.Second {
		return ""
	}
	return time.Duration(float64(taken) / float64(done) * float64(total-done)).Round(time.Second).String()
}

// Close ends the bars; what is written afterwards appears below them. Calling
// it twice is allowed.
func (d *display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.closed = true
	if d.bars == nil {
		return
	}
	for _, v := range d.stages {
		if v.bar != nil && !v.bar.Completed() {
			v.bar.Abort(false)
		}
	}
	bars := d.bars
	d.mu.Unlock() // the bars' last refresh must not find us holding their writer
	bars.Wait()
	d.mu.Lock()
}
