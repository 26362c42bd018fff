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
	"io"
	"math"
	"os"
	"path/filepath"
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

// Log is the open file.
type Log struct {
	path    string
	entries []Entry
	fresh   bool // no entry of this process yet
}

// Open reads what earlier runs left at path. A damaged last line (the run was
// killed while writing) is dropped.
func Open(path string) (*Log, error) {
	l := &Log{path: path, fresh: true}
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("loss log: %w", err)
	}
	r := bufio.NewReader(bytes.NewReader(b))
	for {
		line, err := r.ReadBytes('\n')
		var e Entry
		if json.Unmarshal(line, &e) == nil && err == nil {
			l.entries = append(l.entries, e)
		}
		if err == io.EOF {
			return l, nil
		}
	}
}

// Add appends an entry and writes it. The first entry of a process removes
// every older one at or after its step: the run went back to a checkpoint.
func (l *Log) Add(e Entry) error {
	if l.fresh {
		l.fresh = false
		keep := l.entries[:0]
		for _, old := range l.entries {
			if old.Step < e.Step || (old.Step == e.Step && old.Event != e.Event && e.Event == "step") {
				keep = append(keep, old)
			}
		}
		l.entries = keep
		if err := l.rewrite(); err != nil {
			return err
		}
	}
	l.entries = append(l.entries, e)
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("loss log: %w", err)
	}
	b, err := json.Marshal(e)
	if err == nil {
		_, err = f.Write(append(b, '\n'))
	}
	return errors.Join(err, f.Close())
}

func (l *Log) rewrite() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return fmt.Errorf("loss log: %w", err)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, e := range l.entries {
		if err := enc.Encode(e); err != nil {
			return fmt.Errorf("loss log: %w", err)
		}
	}
	tmp := l.path + ".tmp"
	if err := os.WriteFile(tmp, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("loss log: %w", err)
	}
	return os.Rename(tmp, l.path)
}

// Entries returns all entries, oldest first.
func (l *Log) Entries() []Entry { return l.entries }
