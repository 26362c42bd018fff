package cli

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"longship/pipeline"
)

// barRefresh is the pause between two drawings of the bars.
const barRefresh = 150 * time.Millisecond

// bars shows a run as bars, one a phase, with log lines above them. A bar that
// is full becomes a line like those.
type bars struct {
	w io.Writer

	mu     sync.Mutex
	p      *mpb.Progress // nil once closed
	phases map[string]*barPhase
	notes  map[string]*atomic.Pointer[string] // by stage

	draw    chan any // draws the bars, and writes what waits above them
	ended   chan any // closed when nothing is drawn any more
	stop    chan struct{}
	drawing sync.WaitGroup
}

// barPhase is a phase with its bar, whose decorators read it from the bar's own
// goroutine.
type barPhase struct {
	phase
	bar  *mpb.Bar
	text atomic.Pointer[barText]
}

type barText struct{ counts, left string }

// newBars draws on w, which is a terminal or, for mpb's option ForceTTY, stands
// for one.
func newBars(w io.Writer, opts ...mpb.ContainerOption) *bars {
	b := &bars{
		w: w, phases: map[string]*barPhase{}, notes: map[string]*atomic.Pointer[string]{},
		draw: make(chan any), ended: make(chan any), stop: make(chan struct{}),
	}
	b.p = mpb.New(append(opts, mpb.WithOutput(w), mpb.PopCompletedMode(),
		mpb.WithManualRefresh(b.draw), mpb.WithShutdownNotifier(b.ended))...)
	b.drawing.Go(b.drawRegularly)
	return b
}

func (b *bars) drawRegularly() {
	tick := time.NewTicker(barRefresh)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.drawNow()
		case <-b.stop:
			return
		}
	}
}

// drawNow asks for a drawing; the one asked for before is done when it returns.
func (b *bars) drawNow() {
	select {
	case b.draw <- time.Now():
	case <-b.ended:
	}
}

func (b *bars) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.write(text)
}

func (b *bars) write(text []byte) (int, error) {
	if b.p != nil {
		if n, err := b.p.Write(text); err == nil {
			return n, nil
		} // the terminal could not be drawn on: no bars any more
	}
	return b.w.Write(text)
}

func (b *bars) event(ev pipeline.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev.Event {
	case "progress":
		b.progress(progressOf(ev), ev.Time)
	case "step":
		note := noteOf(ev)
		b.note(ev.Stage).Store(&note)
	default:
		if line, ok := told(ev); ok {
			_, _ = b.write([]byte(line + "\n"))
		}
	}
}

func (b *bars) note(stage string) *atomic.Pointer[string] {
	if b.notes[stage] == nil {
		b.notes[stage] = &atomic.Pointer[string]{}
	}
	return b.notes[stage]
}

func (b *bars) progress(now phase, at time.Time) {
	p := b.phases[now.key()]
	switch {
	case b.p == nil || p != nil && p.over():
		return
	case p == nil:
		p = &barPhase{phase: now}
		p.text.Store(&barText{counts: now.counts()})
		p.bar = b.p.New(int64(now.total), mpb.BarStyle(), b.decorators(p)...)
		b.phases[now.key()] = p
	}
	p.phase = p.phase.at(now)
	p.text.Store(&barText{p.counts(), p.left(at)})
	p.bar.SetTotal(int64(p.total), false)
	p.bar.SetCurrent(int64(p.done))
	if p.over() {
		p.bar.SetTotal(int64(p.total), true)
	}
}

// decorators are the words around a phase's bar.
func (b *bars) decorators(p *barPhase) []mpb.BarOption {
	note := b.note(p.stage)
	words := func(decor.Statistics) string {
		left := p.text.Load().left
		if n := note.Load(); n != nil {
			return " " + *n + " " + left
		}
		return " " + left
	}
	return []mpb.BarOption{
		mpb.PrependDecorators(
			decor.Name(p.stage, decor.WC{W: 10, C: decor.DindentRight | decor.DextraSpace}),
			decor.Any(func(decor.Statistics) string { return p.text.Load().counts }, decor.WCSyncSpaceR),
		),
		mpb.AppendDecorators(decor.NewPercentage("%3d"), decor.Any(words)),
	}
}

// Close draws the bars for the last time.
func (b *bars) Close() error {
	b.mu.Lock()
	p := b.p
	if p == nil {
		b.mu.Unlock()
		return nil
	}
	for _, ph := range b.phases {
		ph.bar.Abort(false)
	}
	close(b.stop)
	b.drawing.Wait()
	// A bar that has ended is drawn twice until it is a line for good, and what
	// is asked for last may not be drawn.
	for range 3 {
		b.drawNow()
	}
	b.p = nil
	b.mu.Unlock()
	p.Wait()
	if p.Error != nil {
		return fmt.Errorf("draw progress: %w", p.Error)
	}
	return nil
}
