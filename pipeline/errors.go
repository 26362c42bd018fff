package pipeline

import (
	"errors"
)

// ErrInterrupted is returned by Run when the user stopped it. What the stages
// had finished is safe.
var ErrInterrupted = errors.New("interrupted")

// StageError says in which stage a run failed.
type StageError struct {
	Stage string // its id
	Err   error
}

func (e *StageError) Error() string { return "stage " + e.Stage + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StageError) Unwrap() error { return e.Err }
