package profile

// Summary is what was measured, of an average step. Times are in seconds.
type Summary struct {
	Steps    int     `json:"steps"`    // measured, none of them traced
	Seconds  float64 `json:"seconds"`  // from its start to its end on the device
	Launches float64 `json:"launches"` // kernels of the compute stream
	Forward  Half    `json:"forward"`
	Backward Half    `json:"backward"`
	Memory   Memory  `json:"memory"`
	Traced   *Traced `json:"traced,omitempty"`
}

// Half is one half of a step; with several micro-batches, all of theirs.
type Half struct {
	Seconds float64  `json:"seconds"`
	Waiting float64  `json:"waiting_seconds"` // of the compute stream for copies
	Busy    float64  `json:"compute_busy"`    // share of the half in which it did not wait
	Copies  []Copies `json:"copies"`          // by stream
}

// Copies are what a copy stream did in a half.
type Copies struct {
	Stream  string  `json:"stream"`
	Bytes   float64 `json:"bytes"`
	Seconds float64 `json:"seconds"`          // copying
	Rate    float64 `json:"bytes_per_second"` // while copying
	Busy    float64 `json:"busy"`             // share of the half
	// Around the turns of a step there is nothing to copy: what comes next is in
	// the ring. First is the time from the half's start to its first copy, Last
	// that from its last copy to its end.
	First       float64 `json:"before_first_seconds"`
	Last        float64 `json:"after_last_seconds"`
	BusyBetween float64 `json:"busy_between"` // share of the time between the two
}

// Memory is the process's memory over the run's steps, in bytes, 0 where it is
// not known.
type Memory struct {
	Peak     int64   `json:"device_peak_bytes"`
	Steady   int64   `json:"device_steady_bytes"` // at the last step
	Drift    float64 `json:"device_drift"`        // from the least to the most behind the warm-up, as a share of the most
	HostPeak int64   `json:"host_peak_bytes"`     // at the end of a step; files that the system caches left out
}

// Traced is what was measured of an average step that was traced. It takes
// longer than others, since every kernel is stamped.
type Traced struct {
	Steps   int          `json:"steps"`
	Seconds float64      `json:"seconds"`
	Waiting float64      `json:"waiting_seconds"` // of the compute stream for copies
	Kernels []FamilyTime `json:"kernels"`
}

// FamilyTime is the time of one of Families, or of Copying.
type FamilyTime struct {
	Family  string  `json:"family"`
	Calls   float64 `json:"calls"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of the traced step
}

// Summary returns what was measured so far; nil where nothing was.
func (r *Recorder) Summary() *Summary {
	if r == nil {
		return nil
	}
	t := &r.warm
	if t.steps == 0 {
		t = &r.all
	}
	if t.steps == 0 && r.traced.steps == 0 {
		return nil
	}
	n := float64(max(t.steps, 1))
	s := &Summary{
		Steps: t.steps, Launches: float64(t.launches) / n, Memory: r.memory.summary(),
		Forward: t.halves[0].summary(n), Backward: t.halves[1].summary(n),
	}
	s.Seconds = s.Forward.Seconds + s.Backward.Seconds
	if k := float64(r.traced.steps); k > 0 {
		s.Traced = &Traced{Steps: r.traced.steps, Seconds: r.traced.time.Seconds() / k,
			Waiting: r.traced.waiting.Seconds() / k, Kernels: r.traced.list()}
	}
	return s
}

func (h *halfTotals) summary(steps float64) Half {
	out := Half{Seconds: h.time.Seconds() / steps, Waiting: h.waiting.Seconds() / steps, Copies: []Copies{}}
	out.Busy = ratio(out.Seconds-out.Waiting, out.Seconds)
	for _, l := range h.lanes {
		if l.bytes == 0 {
			continue
		}
		between := h.time - l.from - l.to
		out.Copies = append(out.Copies, Copies{
			Stream: l.name, Bytes: l.bytes / steps, Seconds: l.busy.Seconds() / steps,
			Rate: ratio(l.bytes, l.busy.Seconds()), Busy: ratio(l.busy.Seconds(), h.time.Seconds()),
			First: l.from.Seconds() / steps, Last: l.to.Seconds() / steps,
			BusyBetween: ratio(l.busy.Seconds(), between.Seconds()),
		})
	}
	return out
}

// Sum returns what a copy stream did in both halves together, false where it did nothing.
func (s *Summary) Sum(stream string) (bytes, seconds float64) {
	for _, h := range []Half{s.Forward, s.Backward} {
		for _, c := range h.Copies {
			if c.Stream == stream {
				bytes, seconds = bytes+c.Bytes, seconds+c.Seconds
			}
		}
	}
	return bytes, seconds
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
