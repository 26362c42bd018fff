// Package pipeline is the contract between stages and the engine that runs
// them: a YAML list of stages becomes a checked graph, and the graph a run.
// It imports no stage and no device.
package pipeline

import (
	"context"

	"github.com/hashicorp/go-hclog"
)

// Stage is one node of a running pipeline.
//
// New (see Factory) is cheap: it touches no file, no weights and no device, so
// that `check` can build the whole graph anywhere. Run works until its inputs
// are drained and its outputs flushed, then returns nil; the engine closes the
// stage's outputs when Run returns. A Stage that holds something beyond Run
// implements io.Closer; Close is called once Run has returned, or has never
// been called, and may be called twice.
type Stage interface {
	// Ports returns the stage's inputs and outputs, fixed by New, in a fixed order.
	Ports() []Port
	// Run does the work. ctx is cancelled when another stage fails.
	Run(ctx context.Context) error
}

// Factory makes stages of one type.
type Factory struct {
	Type    string // as written in YAML: lower_snake_case
	Summary string // one line for `longship stages`
	// Default returns a pointer to a fresh config struct that holds every
	// default. Its yaml tags are the keys; an unknown key is an error. A field
	// of type Path is resolved against the folder of the YAML file. A config
	// may implement Validator.
	Default func() any
	// New makes the stage; cfg is what Default returned, filled from YAML.
	New func(set Settings, cfg any) (Stage, error)
}

// Validator is implemented by configs that check themselves. All faults are
// returned at once (errors.Join); a FieldError places its fault at a key.
type Validator interface{ Validate() error }

// FieldError is a fault of one key of a config. Path is the yaml path inside
// the stage's config, "network.rank".
type FieldError struct {
	Path string
	Msg  string
	Err  error // what Msg tells of, nil where that is no error of its own
}

func (e *FieldError) Error() string { return e.Path + ": " + e.Msg }

// Unwrap returns the cause.
func (e *FieldError) Unwrap() error { return e.Err }

// HeadError is a fault of a key of the pipeline's head that a stage found, in
// Check or in Run. Path is the key's place in the file, "model.path".
type HeadError struct {
	Path string
	Err  error
}

func (e *HeadError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *HeadError) Unwrap() error { return e.Err }

// Path is a config value that names a file or folder. In YAML it is relative
// to the YAML file's folder; what the stage sees is absolute ("" stays "").
type Path string

// Settings is what the engine gives a stage, beside what the user wrote.
type Settings struct {
	ID  string       // the stage's id; the type unless the YAML says otherwise
	Log hclog.Logger // named after the stage
	Env *Env         // what the stages of one run share
}
