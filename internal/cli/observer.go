package cli

import (
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"longship/gpu/profile"
	"longship/internal/losslog"
	"longship/pipeline"
)

// observer takes in a run's events: it shows them, logs losses, and remembers
// what the summary tells. Its method is called from one goroutine.
type observer struct {
	show   display
	losses *losslog.Log
	log    hclog.Logger

	trainer  string        // id of the stage that takes steps
	steps    int           // optimiser steps of this process
	timed    int           // of those, all that were not traced
	stepTime time.Duration // their time
	profile  *profile.Summary
	trace    *tracing // nil where none was asked for
	saved    []string // files written
	first    *losslog.Entry
	last     *losslog.Entry // validations
	broken   bool           // the loss log cannot be written; said once
}

func (o *observer) event(ev pipeline.Event) {
	o.show.event(ev)
	o.trace.event(ev)
	step, loss := int(ev.Number("step")), losslog.Finite(ev.Number("loss"))
	switch ev.Event {
	case "step":
		o.trainer = ev.Stage
		o.steps++
		if traced, _ := ev.Data["traced"].(bool); !traced {
			o.timed++
			o.stepTime += time.Duration(ev.Number("s_per_it") * float64(time.Second))
		}
		o.loss(losslog.Entry{Event: ev.Event, Step: step, Loss: loss, LR: ev.Number("lr")})
	case "validation":
		o.trainer = ev.Stage
		e := losslog.Entry{Event: ev.Event, Step: step, Loss: loss, Zero: losslog.Finite(ev.Number("zero"))}
		if o.first == nil {
			o.first = &e
		}
		o.last = &e
		o.loss(e)
	case "profile":
		o.profile, _ = profile.FromFields(ev.Data)
	case "saved":
		if path, ok := ev.Data["file"].(string); ok && !slices.Contains(o.saved, path) {
			o.saved = append(o.saved, path)
		}
	}
}

// trained says whether this process trained or measured anything: a run that
// was finished before leaves what is written of it as it is.
func (o *observer) trained() bool { return o.trainer != "" }

func (o *observer) loss(e losslog.Entry) {
	if err := o.losses.Add(e); err != nil && !o.broken {
		o.broken = true
		o.log.Warn("the loss curve will be incomplete", "error", err)
	}
}
