package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	"longship/pipeline"
)

// display shows a run while it goes on: its events, and the log, which is
// written to it so that a log line never tears a bar. It may be used from any
// goroutine.
type display interface {
	io.Writer // log lines, whole ones
	event(pipeline.Event)
	// Close ends the display; what is written afterwards appears below it.
	// Calling it twice is allowed.
	Close() error
}

// newDisplay shows bars where progress goes to a terminal, plain lines elsewhere,
// and JSON lines on standard output where those are asked for.
func (a *app) newDisplay(asJSON bool) display {
	switch {
	case asJSON:
		return jsonLines{events: a.out, log: a.err}
	case isTerminal(a.err):
		return newBars(a.err)
	}
	return newLines(a.err)
}

// isTerminal says whether w is a terminal that bars can be drawn on.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// phase is one thing that a stage counts: images, steps, bytes of weights.
type phase struct {
	stage, unit string
	done, total int // total is 0 where it is unknown
	begun       time.Time
	first       int // done when it began: a run that goes on does not begin at 0
}

// progressOf returns the phase that a progress event tells of.
func progressOf(ev pipeline.Event) phase {
	unit, _ := ev.Data["unit"].(string)
	done := int(ev.Number("done"))
	return phase{stage: ev.Stage, unit: unit, done: done, total: int(ev.Number("total")), begun: ev.Time, first: done}
}

// key tells phases apart.
func (p phase) key() string { return p.stage + "\n" + p.unit }

// over says whether the phase is at its end.
func (p phase) over() bool { return p.total > 0 && p.done >= p.total }

// at returns the phase as a later event of it tells.
func (p phase) at(later phase) phase {
	p.done, p.total = later.done, later.total
	return p
}

// counts says how far the phase is: "12 of 240 steps", "1.2 of 3.4 GiB of weights".
func (p phase) counts() string {
	number, unit := func(n int) string { return fmt.Sprint(n) }, p.unit
	if of, isBytes := strings.CutPrefix(p.unit, "bytes"); isBytes {
		number, unit = func(n int) string { return humanize.IBytes(uint64(n)) }, strings.TrimSpace(of)
	}
	s := number(p.done)
	if p.total > 0 {
		s += " of " + number(p.total)
	}
	return strings.TrimSpace(s + " " + unit)
}

// left guesses the time left from the pace since the phase began, "" where
// there is no ground for a guess.
func (p phase) left(now time.Time) string {
	taken := now.Sub(p.begun)
	if p.done <= p.first || p.total <= p.done || taken < time.Second {
		return ""
	}
	left := time.Duration(float64(taken) / float64(p.done-p.first) * float64(p.total-p.done))
	return left.Round(time.Second).String() + " left"
}

// told is the line for an event that is told in words, false for any other.
// What is set aside is in the log already.
func told(ev pipeline.Event) (string, bool) {
	switch ev.Event {
	case "validation":
		return fmt.Sprintf("%s: step %d, validation loss %.4f (predicting zero: %.4f)", ev.Stage,
			int(ev.Number("step")), ev.Number("loss"), ev.Number("zero")), true
	case "saved":
		return fmt.Sprintf("%s: step %d, saved %s", ev.Stage, int(ev.Number("step")), shortPath(fmt.Sprint(ev.Data["file"]))), true
	}
	return "", false
}

// noteOf is what a step event adds to its stage's progress.
func noteOf(ev pipeline.Event) string {
	return fmt.Sprintf("loss %.4f, lr %.2g", ev.Number("loss"), ev.Number("lr"))
}

// jsonLines writes events as JSON lines.
type jsonLines struct{ events, log io.Writer }

func (j jsonLines) Write(b []byte) (int, error) { return j.log.Write(b) }

func (j jsonLines) event(ev pipeline.Event) { _ = printJSON(j.events, ev) }

func (j jsonLines) Close() error { return nil }
