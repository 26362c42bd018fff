package profile

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// Trace collects what happened when, for a file in Chrome's trace format, which
// ui.perfetto.dev and chrome://tracing show: one track for each stream, for each
// stage and for the host. Safe for concurrent use.
type Trace struct {
	from, steps int
	start       time.Time

	mu     sync.Mutex
	run    string
	tracks []*Track
}

// TracedSteps is the usual number of steps in a trace: one with a beginning
// that an untraced step prepared, and one behind it.
const TracedSteps = 2

// NewTrace returns a trace of that many steps of a process behind its first ones.
func NewTrace(behind, steps int) *Trace {
	return &Trace{from: behind, steps: steps, start: time.Now()}
}

// Covers says whether a step is to be traced: step number n, from 0, of a run
// that takes so many in this process. Where the run is too short its last steps are.
func (t *Trace) Covers(n, steps int) bool {
	if t == nil {
		return false
	}
	from := max(0, min(t.from, steps-t.steps))
	return n >= from && n < from+t.steps
}

// Run names the run that tracks asked for from now on belong to, for traces of
// several runs.
func (t *Trace) Run(name string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run = name
}

// Track is a row of a trace. Its slices lie side by side or in each other.
type Track struct {
	t           *Trace
	group, name string
	slices      []slice
}

type slice struct {
	name, category string
	begin, end     time.Time
	args           map[string]any
}

// Track returns the track of a name in a group ("device", "host", "stages").
func (t *Trace) Track(group, name string) *Track {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.run != "" {
		group = t.run + ": " + group
	}
	for _, k := range t.tracks {
		if k.group == group && k.name == name {
			return k
		}
	}
	k := &Track{t: t, group: group, name: name}
	t.tracks = append(t.tracks, k)
	return k
}

// Slice adds something that went on from begin to end.
func (k *Track) Slice(name, category string, begin, end time.Time, args map[string]any) {
	if k == nil {
		return
	}
	k.t.mu.Lock()
	defer k.t.mu.Unlock()
	k.slices = append(k.slices, slice{name, category, begin, end, args})
}

// Begin starts a slice that the function it returns ends.
func (k *Track) Begin(name, category string) (end func()) {
	if k == nil {
		return func() {}
	}
	begin := time.Now()
	return func() { k.Slice(name, category, begin, time.Now(), nil) }
}

// event is one entry of the file (Trace Event Format: phase M names, phase X is
// a whole slice). Times are in microseconds.
type event struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Time     float64        `json:"ts"`
	Duration *float64       `json:"dur,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// Write writes the file: tracks in the order in which they were asked for, the
// slices of each by time, those that hold others before them.
func (t *Trace) Write(w io.Writer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := bufio.NewWriter(w)
	fmt.Fprint(out, `{"displayTimeUnit":"ms","traceEvents":[`)
	separator := "\n"
	write := func(e event) error {
		b, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("trace: %s: %w", e.Name, err)
		}
		fmt.Fprintf(out, "%s%s", separator, b)
		separator = ",\n"
		return nil
	}
	processes := map[string]int{}
	for i, k := range t.tracks {
		pid, known := processes[k.group]
		if !known {
			pid = len(processes) + 1
			processes[k.group] = pid
			if err := write(event{Name: "process_name", Phase: "M", Process: pid, Args: map[string]any{"name": k.group}}); err != nil {
				return err
			}
		}
		tid := i + 1
		for _, e := range []event{
			{Name: "thread_name", Args: map[string]any{"name": k.name}},
			{Name: "thread_sort_index", Args: map[string]any{"sort_index": tid}},
		} {
			e.Phase, e.Process, e.Thread = "M", pid, tid
			if err := write(e); err != nil {
				return err
			}
		}
		for _, s := range k.inOrder() {
			d := micros(s.end.Sub(s.begin))
			e := event{Name: s.name, Category: s.category, Phase: "X", Process: pid, Thread: tid,
				Time: micros(s.begin.Sub(t.start)), Duration: &d, Args: s.args}
			if err := write(e); err != nil {
				return err
			}
		}
	}
	fmt.Fprint(out, "\n]}\n")
	if err := out.Flush(); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

func (k *Track) inOrder() []slice {
	sorted := slices.Clone(k.slices)
	slices.SortStableFunc(sorted, func(a, b slice) int {
		return cmp.Or(a.begin.Compare(b.begin), b.end.Compare(a.end))
	})
	return sorted
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
