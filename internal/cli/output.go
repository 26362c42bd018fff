package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// output is standard output. After the first write that fails nothing more is
// written: a run goes on when who reads its events goes away (| head).
type output struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		_, o.err = o.w.Write(b)
	}
	return len(b), nil
}

// failure returns why not all was written, nil where the reader went away.
func (o *output) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || readerGone(o.err) {
		return nil
	}
	return fmt.Errorf("standard output: %w", o.err)
}

// printJSON prints v in one line.
func printJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(w, "%s\n", b)
	}
	return err
}
