package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"longship/plugins/proto"
)

// errLost is what a run of a stage ends with when its program died or was cut off.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// arrival is a value for an input of the stage, or its end.
type arrival struct {
	port    string
	payload []byte
	err     error
}

// item is a value that the stage was given and has not committed.
type item struct {
	*proto.Item
	kept bool
}

// remote is a run of a stage: of one program after the other, should one die.
// What the stage sent is held back until it is done with the item in hand, so
// that nothing is lost or doubled when the program is started again.
type remote struct {
	*stage
	arrivals chan arrival
	hold     bool
	scratch  string

	mu      sync.Mutex
	number  uint64
	pending []*item
	ended   map[string]bool
	held    []func(context.Context) error
	bytes   int
	summary []*proto.SummaryLine
	heard   time.Time     // when the stage last said something
	room    chan struct{} // has a value when items may be given
}

// Run runs the stage in its program.
func (s *stage) Run(ctx context.Context) (err error) {
	r := &remote{
		stage: s, arrivals: make(chan arrival), ended: map[string]bool{}, room: make(chan struct{}, 1),
		hold: s.prog.cfg.Restart > 0 || s.prog.cfg.OnFailure == "pass",
	}
	if r.scratch, err = os.MkdirTemp("", "longship-tensors"); err != nil {
		return fmt.Errorf("make a folder for tensors: %w", err)
	}
	defer os.RemoveAll(r.scratch)
	inner, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	for _, in := range s.ins {
		if in.in.Connected() {
			readers.Go(func() { r.read(inner, in) })
		}
	}
	for restarts := 0; ; restarts++ {
		err := r.attempt(ctx)
		lost := (*lostError)(nil)
		switch {
		case ctx.Err() != nil && err != nil:
			return ctx.Err()
		case !errors.As(err, &lost):
			return err
		case errors.Is(err, errLie): // it would lie again
		case restarts < s.prog.cfg.Restart:
			s.set.Log.Warn("the program is started again", "program", s.prog.name, "reason", lost.err, "items in hand", len(r.pending))
			r.rewind()
			continue
		}
		err = fmt.Errorf("program %s: %w", s.prog.name, lost.err)
		if s.prog.cfg.OnFailure == "pass" {
			return r.pass(ctx, err)
		}
		return err
	}
}

// read reads an input until its end.
func (r *remote) read(ctx context.Context, in input) {
	for {
		payload, err := in.recv(ctx)
		select {
		case r.arrivals <- arrival{in.name, payload, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// rewind forgets what the dead program sent and was not done with.
func (r *remote) rewind() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held, r.bytes, r.summary = nil, 0, nil
	for _, it := range r.pending {
		it.kept = false
	}
}

// pass hands on what the program was not done with, and all that comes, as it is.
func (r *remote) pass(ctx context.Context, err error) error {
	r.set.Log.Error("the stage failed; what comes is handed on as it is", "error", err)
	n := 0
	hand := func(port string, payload []byte) error {
		n++
		for _, out := range r.outs {
			if out.forwards == port {
				if err := out.send(ctx, payload); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, it := range r.pending {
		if err := hand(it.Port, it.Payload); err != nil {
			return err
		}
	}
	for r.open() {
		select {
		case a := <-r.arrivals:
			switch {
			case a.err == io.EOF:
				r.ended[a.port] = true
			case a.err != nil:
				return a.err
			default:
				if err := hand(a.port, a.payload); err != nil {
					return err
				}
			}
		case <-r.set.Env.Stopping():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.set.Summarise("failed", err.Error())
	r.set.Summarise("handed on as it came", n)
	return nil
}

// open says whether an input is not at its end.
func (r *remote) open() bool {
	for _, in := range r.ins {
		if in.in.Connected() && !r.ended[in.name] {
			return true
		}
	}
	return false
}

// attempt runs the stage in the program as it now runs.
func (r *remote) attempt(ctx context.Context) error {
	i, err := r.prog.running()
	if err != nil {
		return &lostError{err}
	}
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stream, err := i.stages.Run(streamCtx)
	if err != nil {
		cancel()
		return &lostError{r.lost(i, err)}
	}
	a := &attempt{remote: r, i: i, stream: stream, over: make(chan struct{})}
	var helpers sync.WaitGroup
	helpers.Go(func() { a.give(ctx) })
	helpers.Go(func() { a.watch(ctx) })
	err = a.listen(ctx)
	close(a.over)
	a.requests.Wait()
	cancel()
	helpers.Wait()
	return err
}

// lost says why the program no longer answers.
func (r *remote) lost(i *instance, err error) error {
	select {
	case <-i.process.exited:
		return i.process.why()
	case <-time.After(time.Second):
		return err
	}
}

// done commits items: what the stage sent for them holds from now on.
func (r *remote) commit(ctx context.Context, ids []uint64) error {
	r.mu.Lock()
	done := map[uint64]bool{}
	for _, id := range ids {
		done[id] = true
	}
	left := r.pending[:0:0]
	for _, it := range r.pending {
		if done[it.Id] {
			delete(done, it.Id)
			continue
		}
		left = append(left, it)
	}
	r.pending = left
	held := r.held
	r.held, r.bytes = nil, 0
	r.mu.Unlock()
	if len(done) > 0 {
		return fmt.Errorf("%w: it is done with an item that it was not given", errLie)
	}
	for _, f := range held {
		if err := f(ctx); err != nil {
			return err
		}
	}
	select {
	case r.room <- struct{}{}:
	default:
	}
	return nil
}

// keep does f now, or once the stage is done with what it has in hand.
func (r *remote) keep(ctx context.Context, size int, f func(context.Context) error) error {
	r.mu.Lock()
	r.bytes += size
	flood := r.bytes > maxHeld
	if r.hold && !flood {
		r.held = append(r.held, f)
	}
	r.mu.Unlock()
	switch {
	case flood:
		return fmt.Errorf("it was cut off: it floods: it sent %d MiB without being done with an item", maxHeld>>20)
	case r.hold:
		return nil
	}
	return f(ctx)
}
