package runstate

import (
	"context"
	"fmt"

	"github.com/hashicorp/go-hclog"

	"longship/cache/folderlock"
	"longship/pipeline"
)

// Run is a run's hold on its folder: the lock, and the checkpoint to go on from.
// The stages of a run share one through Shared.
type Run struct {
	Folder
	Checkpoint *Checkpoint // nil where the run starts afresh

	lock *folderlock.Lock
}

// CountMicroBatches is the counter of a State that says how many micro-batches
// the run has used: where in the order of batches it goes on.
const CountMicroBatches = "micro_batches"

// Shared returns the run's hold on its folder. The first that asks takes the
// lock, finds the newest checkpoint and names in the log what it had to pass
// over; the run gives the lock free after its stages. The error is a
// *folderlock.BusyError where another process works on the run, unless Env says
// to wait for it, which ends when the run is asked to stop.
func Shared(ctx context.Context, env *pipeline.Env) (*Run, error) {
	return pipeline.Shared(ctx, env, "runstate", func(ctx context.Context) (*Run, error) {
		ctx, cancel := env.UntilStopped(ctx)
		defer cancel()
		return open(ctx, In(env.Output, env.Name), env.Wait, hclog.FromContext(ctx).Named("resume"))
	})
}

func open(ctx context.Context, f Folder, wait bool, log hclog.Logger) (*Run, error) {
	var announce func(*folderlock.BusyError)
	if wait {
		announce = func(busy *folderlock.BusyError) { log.Info("waiting for the run's folder", "cause", busy) }
	}
	lock, err := f.Lock(ctx, announce)
	if err != nil {
		return nil, err
	}
	r := &Run{Folder: f, lock: lock}
	c, ignored, err := f.Latest(ctx)
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("find the checkpoint of run %s: %w", f.Name, err)
	}
	for _, i := range ignored {
		log.Warn("not used to go on from", "file", i.Path, "reason", i.Why)
	}
	if c != nil {
		log.Info("found a checkpoint", "run", f.Name, "step", c.Step, "file", c.StatePath)
	}
	r.Checkpoint = c
	return r, nil
}

// MicroBatches returns the micro-batches that the run has used before.
func (r *Run) MicroBatches() int {
	if r.Checkpoint == nil {
		return 0
	}
	return int(r.Checkpoint.Counters[CountMicroBatches])
}

// Restart moves the old output aside, so that the run starts afresh, and
// returns where it is now; "" where there was none. Call it before any stage runs.
func (r *Run) Restart() (aside string, err error) {
	aside, err = r.Folder.Restart()
	if err == nil {
		r.Checkpoint = nil
	}
	return aside, err
}

// Close gives the folder free. Calling it twice is allowed.
func (r *Run) Close() error {
	if r.lock == nil {
		return nil
	}
	err := r.lock.Release()
	r.lock = nil
	return err
}
