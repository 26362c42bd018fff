// Package gpu is the contract between the training code and the hardware it
// runs on: devices, buffers, streams and events. gpu/cpu is the reference
// implementation and always built; gpu/cuda is behind the build tag `cuda`.
//
// The model is CUDA's. Work is queued on a Stream and runs later, in order;
// two streams run side by side and are ordered only by events. The CPU device
// keeps that promise literally (each stream is a goroutine with a queue), so a
// forgotten event is a data race that `go test -race` finds without a card.
//
// A Device may be used from any goroutine. A Stream belongs to one goroutine
// at a time.
package gpu

import (
	"context"
	"errors"
)

// ErrOutOfMemory is returned (wrapped, with sizes) when a device or the host
// cannot give the memory asked for. The caller should plan smaller, not retry.
var ErrOutOfMemory = errors.New("out of memory")

// Info says what a device is. Bytes are zero where they are not known.
type Info struct {
	Kind       string            // "cpu" or "cuda"
	Index      int               // 0 for the CPU
	Name       string            // "NVIDIA GeForce RTX 4090"
	TotalBytes int64             // memory of the device
	Libraries  map[string]string // versions that decide bits: driver, cublasLt, blas
}

// Device is one place where kernels run.
type Device interface {
	Info() Info
	// Alloc takes device memory. Its content is undefined.
	Alloc(bytes int64) (Buffer, error)
	// AllocHost takes page-locked host memory that Copy can read and write at
	// full speed. Its content is undefined.
	AllocHost(bytes int64) (Buffer, error)
	// NewStream makes a queue; name shows in traces and errors.
	NewStream(name string) (Stream, error)
	// Close frees the device. Streams and buffers must be closed before.
	Close() error
}

// Buffer is a piece of memory of a device, or of pinned host memory.
type Buffer interface {
	Size() int64
	// Host returns the bytes where the host can address them, else nil.
	Host() []byte
	// Free gives the memory back. Calling it twice is allowed.
	Free() error
}

// Region is Len bytes of a buffer from Off on.
type Region struct {
	Buf      Buffer
	Off, Len int64
}

// Bytes returns the region's bytes where the host can address them, else nil.
func (r Region) Bytes() []byte {
	if r.Buf == nil {
		return nil
	}
	h := r.Buf.Host()
	if h == nil {
		return nil
	}
	return h[r.Off : r.Off+r.Len : r.Off+r.Len]
}

// Stream is an ordered queue of work. Queuing never waits for the work. The
// first error (a failed kernel, a failed copy, bad arguments) sticks: later
// work is dropped and Sync returns that error, with the kernel's name in it.
type Stream interface {
	Name() string
	// Launch queues a kernel. The memory its arguments name must stay valid
	// until the kernel has run.
	Launch(k Kernel)
	// Copy queues dst <- src. Lengths must be equal. Either side may be pinned
	// host memory.
	Copy(dst, src Region)
	// Do queues a host function, run in stream order. It must not block on
	// work queued behind it.
	Do(fn func() error)
	// Record returns an event that is reached when all work queued so far is done.
	Record() Event
	// Wait makes all work queued later wait for the event. The host does not
	// wait. An event of a stream that has failed by then fails this one too, so
	// that nothing is computed from work that was dropped.
	Wait(e Event)
	// Fail makes err the stream's error unless it has one already.
	Fail(err error)
	// Sync waits on the host until the queue is empty and returns the sticky error.
	Sync() error
	// Close waits for the queue and frees the stream. Calling it twice is allowed.
	Close() error
}

// Event is a point in a stream.
type Event interface {
	// Done says whether the point has been reached.
	Done() bool
	// Await waits on the host for it, or for ctx. It returns ctx's error, or the
	// error that the event's stream had at that point.
	Await(ctx context.Context) error
}

// Kernel is one call of a kernel with its arguments. Every kernel has a host
// form, the reference; a CUDA device looks Name up in its table of launchers
// and gives the launcher the same value.
type Kernel interface {
	Name() string
	// Host computes the call on the host. It may split work over w.
	Host(w Workers) error
}

// Workers runs loops on several cores. For cuts [0, n) into pieces of at most
// grain, which depend on n and grain only and never on the number of cores, so
// that a reduction over pieces gives the same bits on any machine.
type Workers interface {
	For(n, grain int, body func(lo, hi int))
}
