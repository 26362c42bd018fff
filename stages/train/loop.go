package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"longship/gpu/profile"
	"longship/internal/optim"
	"longship/internal/runstate"
	"longship/pipeline"
	"longship/stages/port"
)

// loop is the course of a run: step after step, what is told of each, and what
// happens between two.
type loop struct {
	*stage
	t      *trainer
	source port.Source
	lent   port.State // what is lent, but for step and counters

	step     int // completed steps
	micros   int // micro-batches used
	updates  int // optimiser updates taken
	skipped  int // steps without an update
	row      int // of those, the last in a row
	reported time.Time
	lastLoss float64

	trace  *profile.Trace // nil where none was asked for
	begun  int            // completed steps before the first of this process
	tapped bool           // the step at hand is traced
}

// staged is a micro-batch ready to be queued.
type staged struct {
	batch *port.Batch
	draw  *draw
}

// compare holds the run against the checkpoint it goes on from, nil for none,
// and names what has changed since.
func (l *loop) compare(from *runstate.Checkpoint) error {
	var err error
	if l.lent.Settings, err = settings(l.set.Env, l.set.ID, &l.cfg); err != nil {
		return err
	}
	l.lent.Settings = append(l.lent.Settings, port.Setting{Name: baseWeights, Value: l.source.BaseIdentity(), Fixed: true})
	if from == nil {
		return nil
	}
	changes, err := from.Compare(l.set.Env.Name, l.lent.Settings)
	if err != nil {
		return err
	}
	for _, c := range changes {
		l.set.Log.Info("a setting has changed since the checkpoint and counts from now on", "setting", c.Name, "was", c.Old, "is", c.New)
	}
	if added, gone := from.CompareDataset(l.lent.Dataset); added+gone > 0 {
		l.set.Log.Info("the dataset has changed since the checkpoint", "added", added, "gone", gone)
	}
	return nil
}

// prepare puts the run where it stands: a new adapter, or what the checkpoint holds.
func (l *loop) prepare(ctx context.Context, from *runstate.Checkpoint) error {
	n := &l.cfg.Network
	l.lent.Adapter = port.Adapter{Type: n.Type, Rank: n.rank(), Alpha: n.alpha(), Targets: n.Targets,
		Arch: l.t.plan.model.Arch(), Base: l.source.BaseIdentity()}
	l.lent.Params, l.lent.Memory = l.t.params(), l.t.memory()
	l.set.Log.Info("adapter", "modules", len(l.t.layers), "parameters", l.t.set.Size(), "rank", n.rank(),
		"alpha", n.alpha(), "scale", l.lent.Adapter.Scale(), "dtype", n.dtypeName(), "workspace_mib", l.t.slab>>20, "recompute", l.t.recomputed())
	l.set.Env.Emit(ctx, pipeline.Event{Event: "workspace", Stage: l.set.ID, Data: map[string]any{"bytes": l.t.slab, "recompute": l.t.recomputed()}})
	if from == nil {
		return nil
	}
	if err := from.Restore(ctx, &l.lent); err != nil {
		return err
	}
	c := from.Counters
	l.step, l.micros = from.Step, int(c[runstate.CountMicroBatches])
	l.updates, l.skipped, l.row = int(c[countUpdates]), int(c[countSkipped]), int(c[countNonFinite])
	l.set.Log.Info("going on", "step", l.step, "of", l.cfg.Steps)
	return l.t.setUpdates(ctx, c[countUpdates])
}

// run takes the steps that are left. Work is queued a step ahead of what is
// known of it: the host waits for a step's loss only when it has queued the next,
// or where something happens between the two.
func (l *loop) run(ctx context.Context, first *port.Batch) error {
	if err := l.begin(ctx); err != nil {
		return err
	}
	if l.step == 0 {
		if err := l.validate(ctx); err != nil {
			return err
		}
	}
	l.reported = time.Now()
	next, err := l.prepareDraw(ctx, first, 0)
	if err != nil {
		return err
	}
	for {
		if err := l.takeStep(ctx, &next); err != nil {
			return err
		}
		if done, err := l.boundary(ctx); done || err != nil {
			return err
		}
	}
}

// takeStep queues a step, of which *next is the first micro-batch, and leaves
// the first of the step behind it in *next.
func (l *loop) takeStep(ctx context.Context, next *staged) error {
	if err := l.tap(ctx); err != nil {
		return err
	}
	s := optim.Step{N: l.step, LR: l.cfg.schedule().LR(l.step)}
	for i := range l.t.micros {
		last := i == l.t.micros-1
		queued := l.host("queue a step")
		if err := l.t.micro(next.batch, next.draw, i, last, s); err != nil {
			return err
		}
		queued()
		l.micros = next.batch.Index + 1
		if last {
			l.step++
			l.t.board.post(l.step, s.LR)
		}
		if l.step == l.cfg.Steps {
			return nil
		}
		if err := l.receive(ctx, next, (i+1)%l.t.micros); err != nil {
			return err
		}
	}
	return nil
}

// receive takes the next micro-batch, the given one of its step.
func (l *loop) receive(ctx context.Context, next *staged, micro int) error {
	received := l.host("wait for a batch")
	b, err := l.batches.Recv(ctx)
	received()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the batches ended after step %d of %d", l.step, l.cfg.Steps)
	}
	if err != nil {
		return err
	}
	*next, err = l.prepareDraw(ctx, b, micro)
	return err
}

func (l *loop) prepareDraw(ctx context.Context, b *port.Batch, micro int) (staged, error) {
	defer l.host("draw noise")()
	d, err := l.t.draws.training(ctx, l.t.timesteps, l.t.seed, l.step, micro, b)
	return staged{b, d}, err
}

// boundary does what is due between two steps, and says whether the run ends here.
func (l *loop) boundary(ctx context.Context) (done bool, err error) {
	at := pipeline.Moment{Step: l.step, Last: l.step == l.cfg.Steps, Stop: l.set.Env.Stopped()}
	measure := at.Last || l.cfg.ValidateEvery > 0 && l.step%l.cfg.ValidateEvery == 0
	if !measure && !at.Stop && !l.state.Wanted(at) {
		return false, l.settle(ctx, 1)
	}
	if err := l.settle(ctx, 0); err != nil {
		return false, err
	}
	if measure {
		if err := l.validate(ctx); err != nil {
			return false, err
		}
	}
	if err := l.lend(ctx, at); err != nil {
		return false, err
	}
	if at.Last || at.Stop {
		l.summarise(ctx)
	}
	l.reported = time.Now()
	return at.Last || at.Stop, nil
}

// lend lends the state to whoever wants it now, with all queued work done.
func (l *loop) lend(ctx context.Context, at pipeline.Moment) error {
	if !l.state.Wanted(at) {
		return nil
	}
	if err := l.t.compute.Record().Await(ctx); err != nil {
		return err
	}
	st := l.lent
	st.Step = l.step
	st.Counters = map[string]int64{
		runstate.CountMicroBatches: int64(l.micros),
		countUpdates:               int64(l.updates),
		countSkipped:               int64(l.skipped),
		countNonFinite:             int64(l.row),
	}
	return l.state.Lend(ctx, at, &st)
}
