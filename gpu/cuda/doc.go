// Package cuda is a gpu.Device on an NVIDIA card (build tag `cuda`).
//
// One goroutine, locked to an OS thread that holds the card's primary context,
// makes all calls that queue work or take memory, with the package-level
// functions of gorgonia.org/cu. Streams hand their work to it in batches:
// Launch, Copy, Record and Wait append to one queue and return; the thread
// takes the whole queue when somebody waits for a result (Sync, Await, Done),
// when enough has gathered, or a moment after the first entry. Nobody but the
// thread is blocked by the driver, and the thread never waits for the card:
// waiting for events is done by threads of their own.
//
// A kernel is found by the Name of its gpu.Kernel in the table of launchers. A
// launcher turns the op's arguments into one or a few calls of functions of the
// embedded PTX, or of cublasLt, which is opened at run time.
//
// A Device may be used from any goroutine, a stream by one at a time. Close
// streams, then free buffers, then close the device.
package cuda
