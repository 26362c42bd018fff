package cli

import (
	"time"

	"longship/gpu/profile"
	"longship/internal/tracefile"
	"longship/pipeline"
)

// traceHelp is the text of --trace.
const traceHelp = "trace two steps and the stages into this file, for ui.perfetto.dev; takes longer for these steps"

// tracing is the trace that --trace asks for; nil where it does not.
type tracing struct {
	*profile.Trace
	path   string
	order  []*stagePhase
	phases map[string]*stagePhase
}

// stagePhase is what a stage counts, from the first to the last that was told of it.
type stagePhase struct {
	track       *profile.Track
	name        string
	first, last time.Time
}

// newTracing makes a trace of two steps behind the given number of a process's
// first. That the file can be written is found out now.
func newTracing(path string, behind int) (*tracing, error) {
	if path == "" {
		return nil, nil
	}
	t := &tracing{Trace: profile.NewTrace(behind, profile.TracedSteps), path: path, phases: map[string]*stagePhase{}}
	if err := tracefile.Write(path, t.Trace); err != nil {
		return nil, &usageError{error: err}
	}
	return t, nil
}

// file is the trace for tracefile.Use and bench.
func (t *tracing) file() *profile.Trace {
	if t == nil {
		return nil
	}
	return t.Trace
}

// event takes in how far a stage is. It is called from one goroutine.
func (t *tracing) event(ev pipeline.Event) {
	if t == nil || ev.Event != "progress" {
		return
	}
	unit, _ := ev.Data["unit"].(string)
	name := ev.Stage + ": " + unit
	p := t.phases[name]
	if p == nil {
		p = &stagePhase{track: t.Track("stages", name), name: name, first: ev.Time}
		t.phases[name] = p
		t.order = append(t.order, p)
	}
	p.last = ev.Time
}

// ended says that the run at hand, whose events these were, is over.
func (t *tracing) ended() {
	if t == nil {
		return
	}
	for _, p := range t.order {
		p.track.Slice(p.name, "stage", p.first, p.last, nil)
	}
	t.order = nil
	clear(t.phases)
}

// write writes the file.
func (t *tracing) write() error {
	if t == nil {
		return nil
	}
	return tracefile.Write(t.path, t.Trace)
}
