// Package losslog keeps the losses of a run as JSON lines beside its adapter
// and draws them. A resumed run continues the file: what it repeats is replaced.
//
// A Log belongs to one goroutine.
package losslog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"longship/cache/atomicfile"
)

// Entry is one line: the loss of a step, or of a validation (Zero is set).
type Entry struct {
	Event string   `json:"event"` // "step" or "validation"
	Step  int      `json:"step"`
	Loss  *float64 `json:"loss"` // nil where it was not finite
	LR    float64  `json:"lr,omitempty"`
	Zero  *float64 `json:"zero,omitempty"` // validation: the loss of predicting zero
}

// Finite returns a pointer to x, nil where x is not finite: JSON has no NaN.
func Finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// Log is the log of one process.
type Log struct {
	path    string
	entries []Entry
	whole   bool // the file holds the entries and nothing else
	loaded  bool
}

// New returns the log at path. The file is read by the first Add: by then the
// run is this process's, and nobody else writes it.
func New(path string) *Log { return &Log{path: path} }

// Read returns the entries in a file; none where there is no file. A line that
// cannot be read is dropped: the last is torn where the run was killed.
func Read(path string) ([]Entry, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("loss log: %w", err)
	}
	var entries []Entry
	for line := range bytes.Lines(b) {
		var e Entry
		if bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &e) == nil {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// Add appends an entry and writes it. The first entry of a process removes
// every older one at or after its step: the run went back to a checkpoint. After
// an error the next Add writes what is missing.
func (l *Log) Add(e Entry) error {
	if !l.loaded {
		old, err := Read(l.path)
		if err != nil {
			return err
		}
		l.entries = slices.DeleteFunc(old, func(o Entry) bool { return o.Step >= e.Step })
		l.loaded = true
	}
	l.entries = append(l.entries, e)
	write := l.rewrite
	if l.whole {
		write = l.appendLast
	}
	err := write()
	if l.whole = err == nil; err != nil {
		return fmt.Errorf("loss log: %w", err)
	}
	return nil
}

// appendLast writes the last entry behind the others.
func (l *Log) appendLast() error {
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(l.entries[len(l.entries)-1]), f.Close())
}

// rewrite writes all entries.
func (l *Log) rewrite() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(l.path, func(f *os.File) error {
		w := bufio.NewWriter(f)
		enc := json.NewEncoder(w)
		for _, e := range l.entries {
			if err := enc.Encode(e); err != nil {
				return err
			}
		}
		return w.Flush()
	})
}
