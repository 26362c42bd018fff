//go:build cuda

package cuda

import (
	"runtime"
	"sync"

	"gorgonia.org/cu"
)

// waiters are goroutines, each on an OS thread of its own, that wait for events
// inside the driver: asleep, so that they cost no core. There are as many as
// events were ever waited for at once.
type waiters struct {
	ctx  cu.CUContext
	jobs chan *event // unbuffered: taken by one that is idle
	wg   sync.WaitGroup
}

func newWaiters(ctx cu.CUContext) *waiters { return &waiters{ctx: ctx, jobs: make(chan *event)} }

// submit has an idle waiter, or a new one, wait for e.
func (w *waiters) submit(e *event) {
	select {
	case w.jobs <- e:
	default:
		w.wg.Go(func() { w.run(e) })
	}
}

func (w *waiters) run(e *event) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cu.SetCurrentContext(w.ctx)
	for ok := true; ok; e, ok = <-w.jobs {
		if err == nil {
			err = e.handle.Synchronize()
		}
		outcome := e.s.dev.outcome(e.s, err)
		e.mu.Lock()
		e.end(outcome)
		e.mu.Unlock()
	}
}

// close ends the waiters. Nobody may submit any more.
func (w *waiters) close() {
	close(w.jobs)
	w.wg.Wait()
}
