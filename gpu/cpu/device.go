// Package cpu is the reference device: kernels run in their host form on the
// cores of this machine, and buffers are ordinary memory.
//
// It keeps the promises of package gpu literally. Every stream is a goroutine
// with an unbounded queue, so queuing never waits, and two streams are ordered
// by events alone: a consumer that forgets to wait is a data race that
// `go test -race` reports. Nothing else orders them.
//
// A Device may be used from any goroutine; a stream belongs to one goroutine at
// a time. Close streams, then free buffers, then close the device.
package cpu

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/shirou/gopsutil/v4/mem"

	"longship/gpu"
	"longship/gpu/blas"
)

// Device is the host as a gpu.Device.
type Device struct {
	info gpu.Info

	mu      sync.Mutex
	buffers int
	bytes   int64
	streams int
}

// New returns the CPU device. It fails where the BLAS library that the
// environment asks for (see package blas) cannot be loaded.
func New() (*Device, error) {
	lib, err := blas.Library()
	if err != nil {
		return nil, err
	}
	d := &Device{info: gpu.Info{
		Kind:      "cpu",
		Name:      fmt.Sprintf("CPU, %d cores (%s)", runtime.NumCPU(), runtime.GOARCH),
		Libraries: map[string]string{"blas": lib},
	}}
	if vm, err := mem.VirtualMemory(); err == nil {
		d.info.TotalBytes = int64(vm.Total)
	}
	return d, nil
}

// Info says what the device is. Libraries names the BLAS that decides bits.
func (d *Device) Info() gpu.Info { return d.info }

// Alloc takes memory, 64-byte aligned. Its content is undefined.
func (d *Device) Alloc(bytes int64) (gpu.Buffer, error) {
	mem, free, err := allocate(bytes)
	if err != nil {
		return nil, err
	}
	d.count(1, bytes)
	return &buffer{dev: d, mem: mem, free: free}, nil
}

// AllocHost is Alloc: all memory is the host's.
func (d *Device) AllocHost(bytes int64) (gpu.Buffer, error) { return d.Alloc(bytes) }

// NewStream starts a queue. Close it to end its goroutine.
func (d *Device) NewStream(name string) (gpu.Stream, error) {
	d.mu.Lock()
	d.streams++
	d.mu.Unlock()
	return newStream(d, name), nil
}

// Close says what was left open, if anything. The device holds nothing itself.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.streams > 0 || d.buffers > 0 {
		return fmt.Errorf("close cpu device: %d streams and %d buffers (%d bytes) are still open", d.streams, d.buffers, d.bytes)
	}
	return nil
}

func (d *Device) count(buffers int, bytes int64) {
	d.mu.Lock()
	d.buffers += buffers
	d.bytes += bytes
	d.mu.Unlock()
}

func (d *Device) streamClosed() {
	d.mu.Lock()
	d.streams--
	d.mu.Unlock()
}

var _ gpu.Device = (*Device)(nil)
