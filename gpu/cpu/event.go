package cpu

import "context"

// event is a point in a stream. err is written before reached is closed.
type event struct {
	reached chan struct{}
	err     error // the stream's error at that point
}

func (e *event) Done() bool {
	select {
	case <-e.reached:
		return true
	default:
		return false
	}
}

// Await waits for the event and returns the error its stream had there.
func (e *event) Await(ctx context.Context) error {
	select {
	case <-e.reached:
		return e.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
