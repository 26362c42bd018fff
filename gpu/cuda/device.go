//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"gorgonia.org/cu"

	"longship/gpu"
	"longship/gpu/cuda/cublaslt"
	"longship/gpu/cuda/shim"
)

// minCapability is the oldest architecture that the kernels are for: Ampere.
const minCapability = 80

// Device is an NVIDIA card as a gpu.Device.
type Device struct {
	info    gpu.Info
	card    cu.Device
	ctx     cu.CUContext
	thread  *thread
	waiters *waiters
	blas    *cublaslt.Library
	sync    bool  // wait after each call, to find the one that fails
	others  int64 // bytes of the card that other processes had when it was opened

	functions map[string]*function // fixed from Open on

	// Of the thread alone.
	streams   map[*stream]struct{}
	events    []cu.Event // free
	timers    []cu.Event // free, with timing
	allTimers []cu.Event
	modules   []cu.Module
	handle    *cublaslt.Handle
	plans     map[gemmShape]*cublaslt.Plan

	mu      sync.Mutex
	closed  bool
	broken  error
	history [8]done // the last work, a ring; calls counts all
	calls   int
	buffers map[*buffer]struct{}
	spare   []workspace
}

// Open opens card number index, loads the driver and cublasLt where that was
// not done yet, and compiles the kernels for the card. Its error is one line
// that says what is missing.
func Open(index int) (*Device, error) {
	if _, err := shim.Load(); err != nil {
		return nil, err
	}
	blas, err := cublaslt.Load(cu.Version())
	if err != nil {
		return nil, err
	}
	d := &Device{
		blas:      blas,
		sync:      os.Getenv("LONGSHIP_CUDA_SYNC") == "1",
		functions: map[string]*function{},
		streams:   map[*stream]struct{}{},
		plans:     map[gemmShape]*cublaslt.Plan{},
		buffers:   map[*buffer]struct{}{},
	}
	d.thread, err = startThread(func() error {
		err := d.open(index)
		if err != nil {
			err = errors.Join(err, d.release())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	d.waiters = newWaiters(d.ctx)
	return d, nil
}

// open runs on the thread.
func (d *Device) open(index int) error {
	n, err := cu.NumDevices()
	if err != nil {
		return fmt.Errorf("count the cards: %w", explain(err))
	}
	if index >= n {
		return fmt.Errorf("there is no card %d: the driver shows %d", index, n)
	}
	if d.card, err = cu.GetDevice(index); err != nil {
		return fmt.Errorf("card %d: %w", index, explain(err))
	}
	if err := d.describe(index); err != nil {
		return fmt.Errorf("card %d: %w", index, explain(err))
	}
	if err := d.suits(); err != nil {
		return fmt.Errorf("card %d (%s): %w", index, d.info.Name, err)
	}
	held := d.heldByOthers()
	if d.ctx, err = d.card.RetainPrimaryCtx(); err != nil {
		return fmt.Errorf("card %d (%s) gives no context (%s): %w", index, d.info.Name, held, explain(err))
	}
	if err := cu.SetCurrentContext(d.ctx); err != nil {
		return fmt.Errorf("card %d (%s): %w", index, d.info.Name, explain(err))
	}
	if err := d.loadModules(); err != nil {
		return fmt.Errorf("card %d (%s): %w", index, d.info.Name, err)
	}
	if d.handle, err = d.blas.Create(); err != nil {
		return fmt.Errorf("card %d (%s): %w", index, d.info.Name, err)
	}
	return d.addWorkspace()
}

// describe reads what the card is.
func (d *Device) describe(index int) error {
	name, err := d.card.Name()
	if err != nil {
		return err
	}
	total, err := d.card.TotalMem()
	if err != nil {
		return err
	}
	major, minor, err := d.card.ComputeCapability()
	if err != nil {
		return err
	}
	d.info = gpu.Info{Kind: "cuda", Index: index, Name: strings.TrimRight(name, "\x00"), TotalBytes: total, Libraries: map[string]string{
		"driver":   cudaVersion(cu.Version()),
		"cublasLt": d.blas.Version(),
		"compute":  fmt.Sprintf("%d.%d", major, minor),
	}}
	return nil
}

// cudaVersion writes 12040 as 12.4.
func cudaVersion(v int) string { return strconv.Itoa(v/1000) + "." + strconv.Itoa(v%1000/10) }

// Info says what the device is. Libraries has the CUDA version that the driver
// supports, cublasLt's version and the compute capability.
func (d *Device) Info() gpu.Info { return d.info }

// MemInfo returns the card's memory as the driver reports it.
func (d *Device) MemInfo() (gpu.MemInfo, error) {
	var m gpu.MemInfo
	err := d.here(func() (err error) {
		m.Free, m.Total, err = cu.MemInfo()
		return explain(err)
	})
	m.Own = max(m.Total-m.Free-d.others, 0)
	return m, err
}

// Close frees the card. It fails, naming them, where streams or buffers are
// still open, and frees their memory all the same. Calling it twice is allowed.
func (d *Device) Close() error {
	d.mu.Lock()
	closed := d.closed
	d.closed = true
	d.mu.Unlock()
	if closed {
		return nil
	}
	var left error
	err := d.thread.close(func() error {
		left = d.leftOpen()
		return d.release()
	})
	d.waiters.close()
	return errors.Join(left, err)
}

// leftOpen names the streams and buffers that were not closed.
func (d *Device) leftOpen() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.streams) == 0 && len(d.buffers) == 0 {
		return nil
	}
	var names []string
	for s := range d.streams {
		names = append(names, s.name)
	}
	var bytes int64
	for b := range d.buffers {
		bytes += b.size
	}
	return fmt.Errorf("close cuda device: %d streams %q and %d buffers (%d bytes) are still open", len(names), names, len(d.buffers), bytes)
}

// release gives everything back to the driver. It runs on the thread, also
// after an open that went half-way.
func (d *Device) release() error {
	if d.ctx == (cu.CUContext{}) {
		return nil
	}
	var errs []error
	if d.handle != nil {
		for _, p := range d.plans {
			p.Destroy()
		}
		errs = append(errs, d.handle.Destroy())
	}
	for s := range d.streams {
		errs = append(errs, s.handle.Destroy())
	}
	for i := range d.events {
		errs = append(errs, cu.DestroyEvent(&d.events[i]))
	}
	for i := range d.allTimers {
		errs = append(errs, cu.DestroyEvent(&d.allTimers[i]))
	}
	for b := range d.buffers {
		errs = append(errs, b.release())
	}
	for _, w := range d.spare {
		errs = append(errs, cu.MemFree(cu.DevicePtr(w)))
	}
	for _, m := range d.modules {
		errs = append(errs, m.Unload())
	}
	if d.failed() != nil {
		// Every call has given the error that broke the context. The next Open
		// shall have a new one, also where a library still holds this.
		return explain(errors.Join(d.card.ResetPrimaryCtx(), d.card.ReleasePrimaryCtx()))
	}
	errs = append(errs, d.card.ReleasePrimaryCtx())
	for i, err := range errs {
		errs[i] = explain(err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close cuda device: %w", err)
	}
	return nil
}

// takeEvent returns a CUDA event that nobody uses.
func (d *Device) takeEvent() (cu.Event, error) {
	if len(d.events) == 0 {
		for s := range d.streams {
			d.reclaim(s)
		}
	}
	if n := len(d.events); n > 0 {
		e := d.events[n-1]
		d.events = d.events[:n-1]
		return e, nil
	}
	return cu.MakeEvent(cu.BlockingSyncEvent | cu.DisableTiming)
}

// reclaim frees the CUDA events of a stream that were reached.
func (d *Device) reclaim(s *stream) {
	for len(s.open) > 0 && s.open[0].settle() {
		d.events = append(d.events, s.open[0].handle)
		s.open[0] = nil
		s.open = s.open[1:]
	}
}

var _ gpu.Device = (*Device)(nil)
