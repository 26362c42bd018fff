package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"longship/pipeline"
)

// linePause is the least time between two lines about one phase, but for its
// first and last.
const linePause = 10 * time.Second

// lines shows a run as plain lines.
type lines struct {
	w io.Writer

	mu     sync.Mutex
	order  []string // keys of phases, the oldest first
	phases map[string]*linePhase
	notes  map[string]string // by stage
}

// linePhase is a phase and what was said of it.
type linePhase struct {
	phase
	said   string    // the last line
	saidAt time.Time // time of the event it told of
}

func newLines(w io.Writer) *lines {
	return &lines{w: w, phases: map[string]*linePhase{}, notes: map[string]string{}}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

func (l *lines) event(ev pipeline.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch ev.Event {
	case "progress":
		l.progress(progressOf(ev), ev.Time)
	case "step":
		l.notes[ev.Stage] = noteOf(ev)
	default:
		if line, ok := told(ev); ok {
			fmt.Fprintln(l.w, line)
		}
	}
}

func (l *lines) progress(now phase, at time.Time) {
	p := l.phases[now.key()]
	if p == nil {
		p = &linePhase{phase: now}
		l.phases[now.key()] = p
		l.order = append(l.order, now.key())
	}
	p.phase = p.phase.at(now)
	if p.saidAt.IsZero() || p.over() || at.Sub(p.saidAt) >= linePause {
		l.say(p, at)
	}
}

// say writes how far a phase is, unless that has been said.
func (l *lines) say(p *linePhase, at time.Time) {
	parts := []string{p.stage + ": " + p.counts()}
	if note := l.notes[p.stage]; note != "" {
		parts = append(parts, note)
	}
	if p.said == strings.Join(parts, ", ") {
		return
	}
	p.said, p.saidAt = strings.Join(parts, ", "), at
	if left := p.left(at); left != "" {
		parts = append(parts, left)
	}
	fmt.Fprintln(l.w, strings.Join(parts, ", "))
}

// Close says how far the phases came that did not end.
func (l *lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range l.order {
		if p := l.phases[key]; !p.over() {
			l.say(p, time.Now())
		}
	}
	l.order = nil
	return nil
}
