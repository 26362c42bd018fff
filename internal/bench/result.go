package bench

import (
	"slices"
	"time"

	"longship/gpu/profile"
	"longship/internal/hostmem"
	"longship/pipeline"
)

// Result is what was measured of a case.
type Result struct {
	Case
	Arch   string `json:"arch"`
	Device string `json:"device"`
	Batch  int    `json:"batch"`
	Steps  int    `json:"steps"`
	Warmup int    `json:"warmup"`

	StepTime Spread  `json:"seconds_per_step"`
	Setup    float64 `json:"setup_seconds"` // from the start to the first step's start
	Loss     float64 `json:"loss"`          // of the last step
	RSS      int64   `json:"host_anonymous_bytes"`

	Forecast *Forecast        `json:"forecast,omitempty"` // made before the run, where the device's rates are known
	Profile  *profile.Summary `json:"profile,omitempty"`  // of the streams; its steps are all but the first two, and the traced
}

// Spread is how a figure lies over the measured steps.
type Spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"p10"`
	High   float64 `json:"p90"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf returns the spread of at least one value.
func spreadOf(values []float64) Spread {
	s := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 {
		i := q * float64(len(s)-1)
		lo := int(i)
		hi := min(lo+1, len(s)-1)
		return s[lo] + (i-float64(lo))*(s[hi]-s[lo])
	}
	return Spread{Median: at(0.5), Low: at(0.1), High: at(0.9), Min: s[0], Max: s[len(s)-1]}
}

// watch takes in the events of a case's run. Its method is called from one goroutine.
type watch struct {
	opt     Options
	started time.Time

	steps []float64 // seconds, warm-up left out
	loss  float64
	first time.Time // when the first step began
	rss   int64     // most seen at the end of a step

	profile *profile.Summary
}

func (w *watch) event(ev pipeline.Event) {
	if w.opt.OnEvent != nil {
		w.opt.OnEvent(ev)
	}
	if ev.Event == "profile" {
		w.profile, _ = profile.FromFields(ev.Data)
	}
	if ev.Event != "step" {
		return
	}
	seconds := number(ev.Data["s_per_it"])
	if w.first.IsZero() {
		w.first = ev.Time.Add(-time.Duration(seconds * float64(time.Second)))
	}
	w.loss = number(ev.Data["loss"])
	w.rss = max(w.rss, hostmem.Anonymous())
	traced, _ := ev.Data["traced"].(bool)
	if int(number(ev.Data["step"])) > w.opt.Warmup && !traced {
		w.steps = append(w.steps, seconds)
	}
}

// result returns what was seen of a case.
func (w *watch) result(c Case) Result {
	return Result{
		Case: c, Arch: w.opt.Arch.Name, Device: w.opt.Device.Info().Name,
		Batch: w.opt.Batch, Steps: w.opt.Steps, Warmup: w.opt.Warmup,
		StepTime: spreadOf(w.steps), Setup: w.first.Sub(w.started).Seconds(), Loss: w.loss, RSS: w.rss, Profile: w.profile,
	}
}

// number reads a number of an event, whatever type it travelled as.
func number(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case float32:
		return float64(v)
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	}
	return 0
}
