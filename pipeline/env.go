package pipeline

import (
	"context"
	"io"
	"sync"
	"time"
)

// Model says where the base model is. Path is an HF folder, or a BFL/Comfy
// single file; VAE, TextEncoder and Tokenizer override the parts of a folder.
type Model struct {
	Path        Path `yaml:"path" doc:"folder of the model, or a single file of its transformer"`
	VAE         Path `yaml:"vae" doc:"the VAE, where it is not in the folder"`
	TextEncoder Path `yaml:"text_encoder" doc:"the text tower, where it is not in the folder"`
	Tokenizer   Path `yaml:"tokenizer" doc:"the tokenizer, where it is not in the folder"`
}

// Env is what the stages of one run share: the head of the YAML file, the
// run's resources, and its events. Its methods may be called from any goroutine.
// A zero Env works outside a run too: its events go nowhere.
type Env struct {
	Name    string // the run's name
	Device  string // auto, cpu, cuda:N
	VRAM    string // auto, or a size: what all stages together may take
	Model   Model
	Plugins []Program // that bring stages of their own
	Output  string    // absolute; the run's files are in Output/Name
	Dir     string    // absolute folder of the YAML file
	Seed    uint64    // 42 unless said otherwise
	Config  []byte    // the whole pipeline as understood, canonical YAML, for the state
	Wait    bool      // wait for a folder that another process has (a cache, this run's output) instead of failing
	Rehash  bool      // read files that are known by path, size and times once more

	Profile bool // take the times of the device's streams where that is not done anyway

	rt runtime
}

// Shared returns the run-wide value of key, opened by the first who asks and
// closed (if it is an io.Closer) after every stage has been closed. Openers of
// one key wait for each other; a failed open is not remembered.
//
//	store, err := pipeline.Shared(ctx, set.Env, "cache:"+dir, func(ctx context.Context) (*cache.Store, error) { … })
func Shared[T any](ctx context.Context, env *Env, key string, open func(ctx context.Context) (T, error)) (T, error) {
	v, err := env.rt.share(ctx, key, func(ctx context.Context) (any, error) { return open(ctx) })
	if err != nil {
		var zero T
		return zero, err
	}
	return v.(T), nil
}

// Stopping is closed when the user asked the run to stop (one SIGINT or
// SIGTERM). A stage that does independent items stops after the one in hand
// and returns nil; train finishes its step, has it saved, and returns; prefetch
// goes on until train no longer receives. A second signal cancels ctx.
func (e *Env) Stopping() <-chan struct{} { return e.rt.stopping().Done() }

// Stopped says whether Stopping is closed.
func (e *Env) Stopped() bool { return e.rt.stopping().Err() != nil }

// UntilStopped returns a context that ends with ctx and when the user asks the
// run to stop: for work that is not worth finishing then, such as waiting for a
// folder or loading weights. A stage may return its error: that work was given
// up on request is no failure.
func (e *Env) UntilStopped(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(e.rt.stopping(), func() { cancel(ErrInterrupted) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// Close closes what Shared opened, the newest first. The engine calls it after
// every stage has been closed.
func (e *Env) Close() error { return e.rt.closeShared() }

// Emit publishes an event on the run's events topic. It never blocks on a
// reader and never fails a run.
func (e *Env) Emit(ctx context.Context, ev Event) { e.rt.emit(ctx, ev) }

// Event is something that observers may want to know: progress, a loss, a file
// written, an item set aside. No training result depends on one.
type Event struct {
	Event string         `cbor:"event"` // "progress", "step", "validation", "set_aside", "saved", "summary", ...
	Stage string         `cbor:"stage"` // id of the stage, "" for the run's own
	Time  time.Time      `cbor:"time"`  // set by Emit where it is zero
	Data  map[string]any `cbor:"data"`  // further fields; flattened beside the others in JSON
}

// Progress emits how far a stage is: done of total units ("images", "steps",
// "bytes of weights"). total 0 means unknown.
func (s Settings) Progress(ctx context.Context, done, total int, unit string) {
	s.Env.Emit(ctx, Event{Event: "progress", Stage: s.ID, Data: map[string]any{"done": done, "total": total, "unit": unit}})
}

// meterPause is the least time between two events of a Meter.
const meterPause = 200 * time.Millisecond

// Meter returns a function that tells how far a stage is, as Progress does, but
// a few times a second at the most, and of the end. It may be called as often as
// one likes, from any goroutine; what comes late is left out.
func (s Settings) Meter(ctx context.Context, unit string) func(done, total int64) {
	var mu sync.Mutex
	var last time.Time
	var told, of int64
	return func(done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if ends := total > 0 && done >= total; total == of && (done <= told || !ends && now.Sub(last) < meterPause) {
			return
		}
		last, told, of = now, done, total
		s.Progress(ctx, int(done), int(total), unit)
	}
}

// SetAside records that an item cannot be used and why; the run goes on without
// it, and the summary lists it. (It is the poison queue of the message edges.)
func (s Settings) SetAside(ctx context.Context, item string, err error) {
	s.Env.rt.setAside(SetAside{Stage: s.ID, Item: item, Reason: err.Error()})
	if s.Env.rt.detached() {
		return // the other end of the line says so
	}
	s.Log.Warn("set aside", "item", item, "reason", err)
	s.Env.Emit(ctx, Event{Event: "set_aside", Stage: s.ID, Data: map[string]any{"item": item, "reason": err.Error()}})
}

// Summarise adds a line to the summary printed and written at the end of the
// run: key/value pairs under the stage's id, in order of arrival.
func (s Settings) Summarise(key string, value any) {
	s.Env.rt.summarise(SummaryEntry{Stage: s.ID, Key: key, Value: value})
}

var _ io.Closer = (*Env)(nil)
