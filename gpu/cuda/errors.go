//go:build cuda

package cuda

import (
	"fmt"
	"reflect"
	"strings"

	"longship/gpu"
	"longship/gpu/cuda/shim"
)

// explain gives an error of cu's the driver's text and name. Out of memory is
// gpu.ErrOutOfMemory too.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
		err = shim.Error(v.Int())
	}
	if err == shim.ErrOutOfMemory {
		return fmt.Errorf("%w: %w", gpu.ErrOutOfMemory, err)
	}
	return err
}

// failed returns what broke the device, nil while it works. A kernel that wrote
// where it may not takes the context with it: every stream fails from then on.
func (d *Device) failed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.broken
}

// outcome is what waiting for an event of s came to: the driver's error there
// is that of some work before it, and breaks the device.
func (d *Device) outcome(s *stream, err error) error {
	if err == nil {
		return nil
	}
	d.mu.Lock()
	if d.broken == nil {
		d.broken = fmt.Errorf("%s: %w (the last work queued: %s; LONGSHIP_CUDA_SYNC=1 waits after each and names the one)",
			d.info.Name, explain(err), strings.Join(d.recent(), ", "))
	}
	d.mu.Unlock()
	return s.failed()
}

// ran remembers work that the driver has taken, for the text of errors that it
// tells late. Where the environment asks for it, it waits for the work.
func (d *Device) ran(s *stream, what string) {
	d.mu.Lock()
	d.history[d.calls%len(d.history)] = done{s, what}
	d.calls++
	d.mu.Unlock()
	if d.sync {
		if err := s.handle.Synchronize(); err != nil {
			s.Fail(fmt.Errorf("%s: %w", what, explain(err)))
			_ = d.outcome(s, err)
		}
	}
}

// done is work that the driver has taken.
type done struct {
	s    *stream
	what string
}

// recent returns the last work, oldest first. The caller holds mu.
func (d *Device) recent() []string {
	var names []string
	for i := max(0, d.calls-len(d.history)); i < d.calls; i++ {
		h := d.history[i%len(d.history)]
		names = append(names, h.s.name+" "+h.what)
	}
	return names
}
