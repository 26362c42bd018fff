package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"longship/pipeline/bus"
)

// RunOptions say how a pipeline runs. The zero value will do.
type RunOptions struct {
	// Signals asks the run to stop: the first closes Env.Stopping, the second
	// cancels the run. Give it what signal.Notify writes to.
	Signals <-chan os.Signal
	// OnEvent is called for every event, in order, from one goroutine. A slow
	// one delays no stage.
	OnEvent func(Event)
	// Bus makes what the message edges travel through; package bus where nil.
	// A Bus shared by several runs has to keep their topics apart.
	Bus func(env *Env, log hclog.Logger) (Bus, error)
}

// Result is what a run leaves to tell. It is returned with an error too.
type Result struct {
	Name        string
	Started     time.Time
	Duration    time.Duration
	Interrupted bool           // the user asked it to stop
	Summary     []SummaryEntry // stage by stage in the pipeline's order, each in order of arrival
	SetAside    []SetAside     // in order of arrival
}

// Run runs every stage on a goroutine of its own until all have returned, then
// closes the stages in reverse order, then what they shared. The first error
// cancels the run and is returned as a *StageError. A run that was asked to stop
// returns an error that is ErrInterrupted, as long as no stage failed. A
// Pipeline runs once.
func (p *Pipeline) Run(ctx context.Context, opts RunOptions) (*Result, error) {
	if p.ran.Swap(true) {
		return nil, errors.New("the pipeline has run already; load it again")
	}
	r := &run{Pipeline: p, opts: opts}
	return r.all(ctx)
}

// run is one run.
type run struct {
	*Pipeline
	opts   RunOptions
	bus    Bus
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	first error // the first failure
}

func (r *run) all(ctx context.Context) (*Result, error) {
	start := time.Now()
	ctx, r.cancel = context.WithCancelCause(hclog.WithContext(ctx, r.log)) // for what stages share
	defer r.cancel(nil)
	err := r.connect(ctx)
	finishEvents := func() {}
	if err == nil {
		finishEvents, err = r.observe(ctx)
	}
	if err == nil {
		r.stages(ctx)
		switch {
		case r.first != nil:
			err = r.first
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case r.Env.Stopped():
			err = ErrInterrupted
		}
	}
	for _, n := range slices.Backward(r.nodes) {
		if c, ok := n.stage.(io.Closer); ok {
			err = r.closing(n.id, c, err)
		}
	}
	err = r.closing("", r.Env, err)
	finishEvents()
	if r.bus != nil {
		err = r.closing("", r.bus, err)
	}
	return r.result(start), err
}

func (r *run) result(start time.Time) *Result {
	rt := &r.Env.rt
	rt.mu.Lock()
	defer rt.mu.Unlock()
	res := &Result{
		Name: r.Env.Name, Started: start, Duration: time.Since(start), Interrupted: rt.asked != nil && rt.asked.Err() != nil,
		Summary: slices.Clone(rt.summary), SetAside: slices.Clone(rt.aside),
	}
	place := map[string]int{}
	for i, n := range r.nodes {
		place[n.id] = i
	}
	slices.SortStableFunc(res.Summary, func(a, b SummaryEntry) int { return place[a.Stage] - place[b.Stage] })
	return res
}

// closing closes c. That it fails is the run's error where it has no other.
func (r *run) closing(stage string, c io.Closer, err error) error {
	e := c.Close()
	switch {
	case e == nil:
		return err
	case err != nil:
		r.log.Warn("could not close", "stage", stage, "error", e)
		return err
	case stage != "":
		return inStage(stage, fmt.Errorf("close: %w", e))
	}
	return fmt.Errorf("close: %w", e)
}

// connect opens the bus and makes every edge.
func (r *run) connect(ctx context.Context) error {
	log := r.log.Named("bus")
	if r.opts.Bus == nil {
		r.bus = bus.New(log)
	} else {
		b, err := r.opts.Bus(r.Env, log)
		if err != nil {
			return fmt.Errorf("open message bus: %w", err)
		}
		r.bus = b
	}
	for _, n := range r.nodes {
		for _, e := range n.edges {
			l := link{
				ctx: ctx, bus: r.bus, stage: n.id,
				from: end{e.from, e.out}.String(), to: end{n, e.in}.String(),
			}
			if err := e.out.(source).bind(l, e.in); err != nil {
				return err
			}
		}
	}
	return nil
}

// stages runs the stages and returns when all have.
func (r *run) stages(ctx context.Context) {
	unwatch := r.watch()
	defer unwatch()
	var wg sync.WaitGroup
	for _, n := range r.nodes {
		wg.Go(func() { r.stage(ctx, n) })
	}
	wg.Wait()
	for _, n := range r.nodes {
		for _, out := range n.outputPorts() {
			out.(source).discard()
		}
	}
}

// stage runs one stage and takes leave of its neighbours.
func (r *run) stage(ctx context.Context, n *node) {
	start := time.Now()
	r.log.Debug("stage starts", "stage", n.id)
	err := runSafely(ctx, Settings{ID: n.id, Log: r.log}, n.stage)
	if errors.Is(err, ErrDone) {
		err = nil
	}
	if err != nil {
		r.fail(ctx, n, err)
	}
	for _, p := range n.ports {
		switch p := p.(type) {
		case sink:
			p.stop()
		case source:
			if err := p.finish(ctx); err != nil {
				r.fail(ctx, n, err)
			}
		}
	}
	r.log.Debug("stage ended", "stage", n.id, "after", time.Since(start))
}

// fail keeps the first error and cancels the run. What a stage returns because
// the run is cancelled, or was asked to stop, is no failure of its own.
func (r *run) fail(ctx context.Context, n *node, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended := ctx.Err() != nil && errors.Is(err, ctx.Err())
	asked := r.Env.Stopped() && (errors.Is(err, context.Canceled) || errors.Is(err, ErrInterrupted))
	if ended || asked {
		return
	}
	if first := (*StageError)(nil); errors.As(r.first, &first) && errors.Is(err, first.Err) {
		return // the same, told by the stage that lent or borrowed
	}
	if r.first != nil || ctx.Err() != nil {
		r.log.Warn("stage failed while the run was ending", "stage", n.id, "error", err)
		return
	}
	r.first = inStage(n.id, err)
	r.cancel(r.first)
}

// inStage says in which stage err arose, unless err knows.
func inStage(id string, err error) error {
	if se := (*StageError)(nil); errors.As(err, &se) {
		return se
	}
	return &StageError{Stage: id, Err: err}
}

// watch acts on signals until the function that it returns is called.
func (r *run) watch() (stop func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 1; ; n++ {
			select {
			case sig := <-r.opts.Signals:
				if n == 1 {
					r.log.Info("stopping after the work in hand; a second signal stops at once", "signal", sig)
					r.Env.rt.softStop()
					continue
				}
				r.log.Warn("stopping at once", "signal", sig)
				r.cancel(fmt.Errorf("%w by a second signal", ErrInterrupted))
				return
			case <-ended:
				return
			}
		}
	})
	return func() { close(ended); wg.Wait() }
}

// observe connects the events topic to OnEvent. The function that it returns
// ends the topic and waits until every event has been seen; a cancelled run goes
// on telling until then.
func (r *run) observe(ctx context.Context) (finish func(), err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	out, in := NewOut[Event]("events"), NewIn[Event]("events")
	if err := out.bind(link{ctx: ctx, bus: r.bus, from: "events", to: "observer"}, in); err != nil {
		cancel()
		return func() {}, err
	}
	r.Env.rt.setEvents(out)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer in.close()
		for {
			ev, err := in.Recv(ctx)
			if err != nil {
				if err != io.EOF {
					r.log.Warn("events are no longer seen", "error", err)
				}
				return
			}
			if r.opts.OnEvent != nil {
				r.opts.OnEvent(ev)
			}
		}
	})
	return func() {
		r.Env.rt.setEvents(nil)
		if err := out.finish(ctx); err != nil {
			cancel() // the end was not sent
		}
		wg.Wait()
		cancel()
	}, nil
}
