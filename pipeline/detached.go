package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Line leads from a stage that runs in a process of its own to the pipeline that
// it is part of. Its methods may be called from several goroutines.
type Line interface {
	// Take waits for the next message of an input: io.EOF at its end and when
	// done is closed, ctx's error when cancelled.
	Take(ctx context.Context, done <-chan struct{}, port string) (Parcel, error)
	// Put sends a message of an output.
	Put(ctx context.Context, port string, payload []byte) error
	Emit(ev Event)
	SetAside(item, reason string)
	Summarise(key string, value any)
}

// Parcel is a message of an input, as the Line brings it.
type Parcel struct {
	Payload []byte
	// Done is called when the stage is done with the message (Each).
	Done func()
	// Kept is called, in place of Done, when the stage took the message without
	// saying when it is done with it (Recv).
	Kept func()
}

// RunDetached runs one stage at the end of a Line, with the engine's care: a
// panic is an error, ErrDone is none, and the stage and what it shared are closed.
// wired are the ports that are connected. stop asks the stage to stop, as
// Env.Stopping tells it.
func RunDetached(ctx context.Context, set Settings, s Stage, line Line, wired []string, stop <-chan struct{}) (err error) {
	rt := &set.Env.rt
	rt.mu.Lock()
	rt.line = line
	rt.mu.Unlock()
	connected := map[string]bool{}
	for _, name := range wired {
		connected[name] = true
	}
	var ports []detachable
	for _, p := range s.Ports() {
		d, ok := p.(detachable)
		if !ok || !p.port().message {
			return fmt.Errorf("port %s: %s is handed over in memory, so it cannot lead to another process", p.Name(), typeName(p))
		}
		if connected[p.Name()] {
			d.detach(line)
		}
		ports = append(ports, d)
	}
	var watch sync.WaitGroup
	ended := make(chan struct{})
	watch.Go(func() {
		select {
		case <-stop:
			rt.softStop()
		case <-ended:
		}
	})
	err = runSafely(ctx, set, s)
	if errors.Is(err, ErrDone) {
		err = nil
	}
	for _, p := range ports {
		if in, ok := p.(sink); ok {
			in.stop()
		}
	}
	close(ended)
	watch.Wait()
	if c, ok := s.(io.Closer); ok {
		err = errors.Join(err, c.Close())
	}
	return errors.Join(err, set.Env.Close())
}

// runSafely runs the stage; a panic becomes an error, its stack goes to the log.
func runSafely(ctx context.Context, set Settings, s Stage) (err error) {
	defer func() {
		if v := recover(); v != nil {
			set.Log.Error("stage panicked", "stage", set.ID, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
			if cause, ok := v.(error); ok {
				err = fmt.Errorf("panic: %w", cause)
			}
		}
	}()
	return s.Run(ctx)
}

// detachable is a port that a Line can be connected to.
type detachable interface {
	Port
	detach(Line)
}

func (i *In[T]) detach(line Line) {
	i.p.connected = true
	i.feeds = append(i.feeds, &lineFeed[T]{line: line, port: i.p.name})
}

func (o *Out[T]) detach(line Line) {
	o.p.connected, o.line = true, line
}

// lineFeed is the receiving end of a Line.
type lineFeed[T any] struct {
	line Line
	port string
	out  []held // with the stage, not known to be done
}

type held struct {
	msg  *message.Message
	done func()
}

// sweep tells of the messages that the stage is done with. The stage asks for
// the next one right after it is done with one, so nobody need wait for acks.
func (f *lineFeed[T]) sweep() {
	left := f.out[:0]
	for _, h := range f.out {
		select {
		case <-h.msg.Acked():
			h.done()
		case <-h.msg.Nacked(): // kept
		default:
			left = append(left, h)
		}
	}
	f.out = left
}

func (f *lineFeed[T]) receive(ctx context.Context, done <-chan struct{}) (d delivery[T], err error) {
	f.sweep()
	p, err := f.line.Take(ctx, done, f.port)
	if err != nil {
		return d, err
	}
	msg := message.NewMessage("", p.Payload)
	d.msg, d.kept = msg, func() { p.Kept(); msg.Nack() }
	f.out = append(f.out, held{msg, p.Done})
	if err := decode(p.Payload, &d.v); err != nil {
		return d, fmt.Errorf("input %s: %w", f.port, err)
	}
	return d, nil
}

func (f *lineFeed[T]) leave() { f.sweep() }

// Marshal returns the payload of a message: CBOR, as edges carry it.
func Marshal(v any) ([]byte, error) { return encode(v) }

// Unmarshal reads the payload of a message into v, a pointer.
func Unmarshal(payload []byte, v any) error { return decode(payload, v) }

// CheckDetached has a stage in a process of its own look for faults, and returns
// them with what it found, as Pipeline.Check does for a whole pipeline.
func CheckDetached(ctx context.Context, env *Env, c Checker) (found []SummaryEntry, err error) {
	err = errors.Join(c.Check(ctx), env.Close())
	return env.rt.takeSummary(), err
}
