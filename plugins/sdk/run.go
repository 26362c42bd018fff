package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"

	"longship/pipeline"
	"longship/plugins/proto"
	"longship/plugins/tensors"
)

// Run runs a stage: what the engine does for one in process, at the end of a line.
func (s *server) Run(stream grpc.BidiStreamingServer[proto.ToStage, proto.FromStage]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return errors.New("the first message is not Start")
	}
	env, err := proto.UnmarshalEnv(start.Env)
	if err != nil {
		return err
	}
	log := s.logger(start.Id, start.LogLevel)
	set := pipeline.Settings{ID: start.Id, Log: log, Env: env}
	ctx, cancel := context.WithCancel(hclog.WithContext(stream.Context(), log))
	defer cancel()
	l := newLine(stream, start.Scratch)
	var reader sync.WaitGroup
	reader.Go(func() { l.read(cancel) })
	err = s.run(ctx, set, start, l)
	if e := l.done(err); e != nil {
		return e
	}
	return nil // the reader ends with the stream
}

func (s *server) run(ctx context.Context, set pipeline.Settings, start *proto.Start, l *line) error {
	stage, err := s.make(set, start.Type, start.Config)
	if err != nil {
		return err
	}
	if err := tensors.Provide(ctx, set.Env, l.open); err != nil {
		return err
	}
	return pipeline.RunDetached(ctx, set, stage, l, start.Connected, l.stop)
}

// line is a pipeline.Line over the connection.
type line struct {
	stream  grpc.BidiStreamingServer[proto.ToStage, proto.FromStage]
	scratch string
	stop    chan struct{} // closed when the run is asked to stop

	sending sync.Mutex

	mu      sync.Mutex
	stopped bool
	inputs  map[string]*queue
	inHand  int      // items that the stage has and neither is done with nor keeps
	kept    bool     // some items are kept until the end
	ids     []uint64 // done with, not committed
	number  uint64   // of the last tensor request
	answers map[uint64]chan *proto.Tensor
	broken  error // why nothing comes any more
}

// queue is what has come for an input.
type queue struct {
	items []*proto.Item
	ended bool
	ready chan struct{} // has a value when something has come
}

func newLine(stream grpc.BidiStreamingServer[proto.ToStage, proto.FromStage], scratch string) *line {
	return &line{stream: stream, scratch: scratch, stop: make(chan struct{}), inputs: map[string]*queue{}, answers: map[uint64]chan *proto.Tensor{}}
}

// input returns the queue of a port; l.mu is held.
func (l *line) input(port string) *queue {
	q, ok := l.inputs[port]
	if !ok {
		q = &queue{ready: make(chan struct{}, 1)}
		l.inputs[port] = q
	}
	return q
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// read takes in what longship sends until the connection ends.
func (l *line) read(cancel context.CancelFunc) {
	for {
		m, err := l.stream.Recv()
		if err != nil {
			l.mu.Lock()
			l.broken = fmt.Errorf("connection to longship: %w", err)
			for _, a := range l.answers {
				close(a)
			}
			l.answers = nil
			l.mu.Unlock()
			cancel()
			return
		}
		l.take(m, cancel)
	}
}

func (l *line) take(m *proto.ToStage, cancel context.CancelFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch of := m.Of.(type) {
	case *proto.ToStage_Item:
		q := l.input(of.Item.Port)
		q.items = append(q.items, of.Item)
		q.signal()
	case *proto.ToStage_End:
		q := l.input(of.End.Port)
		q.ended = true
		q.signal()
	case *proto.ToStage_Stop:
		if !l.stopped {
			l.stopped = true
			close(l.stop)
		}
	case *proto.ToStage_Cancel:
		cancel()
	case *proto.ToStage_Tensor:
		if a, ok := l.answers[of.Tensor.Number]; ok {
			delete(l.answers, of.Tensor.Number)
			a <- of.Tensor
		}
	}
}

// Take waits for the next item of an input.
func (l *line) Take(ctx context.Context, done <-chan struct{}, port string) (pipeline.Parcel, error) {
	l.mu.Lock()
	q := l.input(port)
	l.mu.Unlock()
	for {
		l.mu.Lock()
		if len(q.items) > 0 {
			item := q.items[0]
			q.items = q.items[1:]
			l.inHand++
			l.mu.Unlock()
			return pipeline.Parcel{Payload: item.Payload, Done: func() { l.finish(item.Id) }, Kept: func() { l.keep(item.Id) }}, nil
		}
		ended := q.ended
		l.mu.Unlock()
		if ended {
			return pipeline.Parcel{}, io.EOF
		}
		select {
		case <-q.ready:
		case <-done:
			return pipeline.Parcel{}, io.EOF
		case <-ctx.Done():
			return pipeline.Parcel{}, ctx.Err()
		}
	}
}

// finish commits what the stage is done with once it has nothing in hand.
func (l *line) finish(id uint64) {
	l.mu.Lock()
	l.inHand--
	l.ids = append(l.ids, id)
	var ids []uint64
	if l.inHand == 0 && !l.kept {
		ids, l.ids = l.ids, nil
	}
	l.mu.Unlock()
	if len(ids) > 0 {
		l.tell(&proto.FromStage{Of: &proto.FromStage_Commit{Commit: &proto.Commit{Ids: ids}}})
	}
}

func (l *line) keep(id uint64) {
	l.mu.Lock()
	l.inHand--
	l.kept = true
	l.mu.Unlock()
	l.tell(&proto.FromStage{Of: &proto.FromStage_Kept{Kept: &proto.Kept{Id: id}}})
}

// Put sends a value of an output.
func (l *line) Put(_ context.Context, port string, payload []byte) error {
	if len(payload) > proto.MaxPayload {
		return fmt.Errorf("a value of %d bytes for output %s: at most %d cross between programs; put what is large into a cache and send its Ref", len(payload), port, proto.MaxPayload)
	}
	return l.send(&proto.FromStage{Of: &proto.FromStage_Output{Output: &proto.Output{Port: port, Payload: payload}}})
}

// Emit, SetAside and Summarise tell the run; a line that is broken ends the
// stage by its context.

func (l *line) Emit(ev pipeline.Event) {
	if b, err := pipeline.Marshal(ev); err == nil {
		l.tell(&proto.FromStage{Of: &proto.FromStage_Event{Event: &proto.Event{Event: b}}})
	}
}

func (l *line) SetAside(item, reason string) {
	l.tell(&proto.FromStage{Of: &proto.FromStage_SetAside{SetAside: &proto.SetAside{Item: item, Reason: reason}}})
}

func (l *line) Summarise(key string, value any) {
	b, err := pipeline.Marshal(value)
	if err != nil { // what has no codec is its text
		b, _ = pipeline.Marshal(fmt.Sprint(value))
	}
	l.tell(&proto.FromStage{Of: &proto.FromStage_Summary{Summary: &proto.SummaryLine{Key: key, Value: b}}})
}

// done says how the stage ended.
func (l *line) done(err error) error {
	d := &proto.Done{}
	if err != nil {
		f := &proto.Fault{Text: err.Error()}
		if all := faultsOf(err); len(all) == 1 {
			f = all[0]
		}
		d.Error, d.Key, d.HeadKey = f.Text, f.Key, f.HeadKey
	}
	return l.send(&proto.FromStage{Of: &proto.FromStage_Done{Done: d}})
}

func (l *line) tell(m *proto.FromStage) { _ = l.send(m) }

func (l *line) send(m *proto.FromStage) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	if err := l.stream.Send(m); err != nil {
		return fmt.Errorf("connection to longship: %w", err)
	}
	return nil
}
