package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"longship/cache"
	"longship/pipeline"
	"longship/plugins/proto"
)

// attempt is a run of a stage in one process.
type attempt struct {
	*remote
	i        *instance
	stream   grpc.BidiStreamingClient[proto.ToStage, proto.FromStage]
	sending  sync.Mutex
	over     chan struct{} // closed when the stage has ended
	requests sync.WaitGroup
}

func (a *attempt) send(m *proto.ToStage) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	return a.stream.Send(m)
}

// give gives the stage what it needs: its start, what an earlier process was not
// done with, then what comes. That it cannot be sent shows where we listen.
func (a *attempt) give(ctx context.Context) {
	req, err := a.request()
	if err != nil {
		a.i.process.cut(err)
		return
	}
	start := &proto.Start{Type: req.Type, Id: req.Id, Config: req.Config, Env: req.Env, LogLevel: a.set.Log.GetLevel().String(), Scratch: a.scratch}
	for _, p := range a.ports {
		if c, ok := p.(interface{ Connected() bool }); !ok || c.Connected() {
			start.Connected = append(start.Connected, p.Name())
		}
	}
	if a.send(&proto.ToStage{Of: &proto.ToStage_Start{Start: start}}) != nil {
		return
	}
	a.mu.Lock()
	a.heard = time.Now()
	again := append([]*item{}, a.pending...)
	var ended []string
	for port := range a.ended {
		ended = append(ended, port)
	}
	a.mu.Unlock()
	for _, it := range again {
		if a.send(&proto.ToStage{Of: &proto.ToStage_Item{Item: it.Item}}) != nil {
			return
		}
	}
	for _, port := range ended {
		if a.send(&proto.ToStage{Of: &proto.ToStage_End{End: &proto.End{Port: port}}}) != nil {
			return
		}
	}
	for {
		arrivals := a.arrivals
		if a.full() {
			arrivals = nil
		}
		select {
		case <-a.room:
		case next := <-arrivals:
			if a.hand(next) != nil {
				return
			}
		case <-a.over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// full says whether the stage has as many items as it is given ahead.
func (r *remote) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, it := range r.pending {
		if !it.kept {
			n++
		}
	}
	return n >= ahead*max(1, len(r.ins))
}

func (a *attempt) hand(next arrival) error {
	a.mu.Lock()
	if next.err != nil {
		a.ended[next.port] = true
		a.mu.Unlock()
		if next.err != io.EOF {
			return next.err // ctx's
		}
		return a.send(&proto.ToStage{Of: &proto.ToStage_End{End: &proto.End{Port: next.port}}})
	}
	a.number++
	if a.inHand() == 0 {
		a.heard = time.Now()
	}
	it := &item{Item: &proto.Item{Port: next.port, Id: a.number, Payload: next.payload}}
	a.pending = append(a.pending, it)
	a.mu.Unlock()
	return a.send(&proto.ToStage{Of: &proto.ToStage_Item{Item: it.Item}})
}

// inHand returns how many items the stage has and does not keep; r.mu is held.
func (r *remote) inHand() (n int) {
	for _, it := range r.pending {
		if !it.kept {
			n++
		}
	}
	return n
}

// busy says whether the stage must be working: every input that is not at its
// end has an item for it. r.mu is held.
func (r *remote) busy() bool {
	has := map[string]bool{}
	for _, it := range r.pending {
		if !it.kept {
			has[it.Port] = true
		}
	}
	for _, in := range r.ins {
		if in.in.Connected() && !r.ended[in.name] && !has[in.name] {
			return false
		}
	}
	return len(has) > 0
}

// watch tells the stage to stop or to end, and cuts its program off where it
// does not, or where it is silent for too long.
func (a *attempt) watch(ctx context.Context) {
	tick := time.NewTicker(min(a.prog.cfg.Timeout/4, time.Second))
	defer tick.Stop()
	stopping := a.set.Env.Stopping()
	for {
		select {
		case <-a.over:
			return
		case <-stopping:
			stopping = nil
			_ = a.send(&proto.ToStage{Of: &proto.ToStage_Stop{Stop: &proto.Stop{}}})
		case <-tick.C:
			a.mu.Lock()
			hangs := a.busy() && time.Since(a.heard) > a.prog.cfg.Timeout
			a.mu.Unlock()
			if hangs {
				a.i.process.cut(fmt.Errorf("it was cut off: it hangs: it was silent for %v over one item", a.prog.cfg.Timeout))
				return
			}
		case <-ctx.Done():
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_ = a.send(&proto.ToStage{Of: &proto.ToStage_Cancel{Cancel: &proto.Cancel{}}})
			}()
			select {
			case <-a.over:
			case <-time.After(endWithin):
				a.i.process.cut(fmt.Errorf("it was cut off: it did not end within %v of being cancelled", endWithin))
			}
			<-sent
			return
		}
	}
}

// listen takes what the stage says until it is done.
func (a *attempt) listen(ctx context.Context) error {
	for {
		m, err := a.stream.Recv()
		if err != nil {
			return &lostError{a.lost(a.i, err)}
		}
		a.mu.Lock()
		a.heard = time.Now()
		a.mu.Unlock()
		if done := m.GetDone(); done != nil {
			return a.finish(ctx, done)
		}
		if err := a.heardOf(ctx, m); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			a.i.process.cut(err)
			<-a.i.process.exited
			return &lostError{a.i.process.why()}
		}
	}
}

// heardOf acts on what the stage said. An error cuts it off.
func (a *attempt) heardOf(ctx context.Context, m *proto.FromStage) error {
	switch of := m.Of.(type) {
	case *proto.FromStage_Output:
		out, ok := a.outs[of.Output.Port]
		if !ok {
			return fmt.Errorf("%w: it has no output %q", errLie, of.Output.Port)
		}
		return a.keep(ctx, len(of.Output.Payload), func(ctx context.Context) error { return out.send(ctx, of.Output.Payload) })
	case *proto.FromStage_Commit:
		return a.commit(ctx, of.Commit.Ids)
	case *proto.FromStage_Kept:
		a.mu.Lock()
		for _, it := range a.pending {
			it.kept = it.kept || it.Id == of.Kept.Id
		}
		a.mu.Unlock()
		select {
		case a.room <- struct{}{}:
		default:
		}
		return nil
	case *proto.FromStage_Event:
		var ev pipeline.Event
		if err := pipeline.Unmarshal(of.Event.Event, &ev); err != nil {
			return fmt.Errorf("%w: an event: %v", errLie, err)
		}
		ev.Stage = a.set.ID
		a.set.Env.Emit(ctx, ev)
		return nil
	case *proto.FromStage_SetAside:
		return a.keep(ctx, len(of.SetAside.Item)+len(of.SetAside.Reason), func(ctx context.Context) error {
			a.set.SetAside(ctx, of.SetAside.Item, errors.New(of.SetAside.Reason))
			return nil
		})
	case *proto.FromStage_Summary:
		a.summary = append(a.summary, of.Summary)
		return nil
	case *proto.FromStage_Request:
		a.requests.Go(func() {
			answer := a.redeem(ctx, of.Request)
			answer.Number = of.Request.Number
			_ = a.send(&proto.ToStage{Of: &proto.ToStage_Tensor{Tensor: answer}})
		})
		return nil
	}
	return fmt.Errorf("%w: a message that this longship does not know", errLie)
}

// finish ends the run of a stage that has ended by itself.
func (a *attempt) finish(ctx context.Context, done *proto.Done) error {
	if done.Error != "" {
		return placed(done.Error, done.Key, done.HeadKey)
	}
	var ids []uint64
	for _, it := range a.pending {
		ids = append(ids, it.Id)
	}
	if err := a.commit(ctx, ids); err != nil {
		return err
	}
	for _, line := range a.summary {
		var v any
		if err := pipeline.Unmarshal(line.Value, &v); err != nil {
			return fmt.Errorf("summary %s: %w", line.Key, err)
		}
		a.set.Summarise(line.Key, v)
	}
	return nil
}

// redeem gets or puts a tensor for the stage.
func (a *attempt) redeem(ctx context.Context, req *proto.TensorRequest) *proto.Tensor {
	fail := func(err error) *proto.Tensor {
		return &proto.Tensor{Error: err.Error(), Missing: errors.Is(err, cache.ErrNotFound)}
	}
	var ref cache.Ref
	if err := pipeline.Unmarshal(req.Ref, &ref); err != nil {
		return fail(err)
	}
	store, err := cache.Shared(hclog.WithContext(ctx, a.set.Log), a.set.Env, req.Cache)
	if err != nil {
		return fail(err)
	}
	switch req.Op {
	case "has":
		return &proto.Tensor{Found: store.Has(ctx, ref)}
	case "get":
		data, err := store.Get(ctx, ref, nil)
		if err != nil {
			return fail(err)
		}
		f, err := os.CreateTemp(a.scratch, "get-")
		if err != nil {
			return fail(err)
		}
		_, err = f.Write(data)
		if err := errors.Join(err, f.Close()); err != nil {
			return fail(err)
		}
		return &proto.Tensor{File: filepath.Base(f.Name())}
	case "put":
		path := filepath.Join(a.scratch, filepath.Base(req.File))
		defer os.Remove(path)
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() > cache.MaxTensor {
			return fail(fmt.Errorf("%s: %q is no file of a tensor in the folder for them", ref, req.File))
		}
		data, err := os.ReadFile(path)
		if err == nil {
			err = store.Put(ctx, ref, data)
		}
		if err != nil {
			return fail(err)
		}
		return &proto.Tensor{}
	}
	return fail(fmt.Errorf("there is no request %q", req.Op))
}
