package gpu

import "time"

// Clock is a Device that can tell when work of its streams ran. The time is the
// device's own, from when the work before a point has ended: that it is taken
// makes nothing wait.
type Clock interface {
	// Stamp queues a point on a stream of the device whose time will be known once
	// it is reached. It may be called where a kernel may be launched.
	Stamp(s Stream) Stamp
	// Times returns the time from base to each of the stamps, whichever streams
	// they are of; a stamp before base has a negative time. It ends at the first
	// stamp that is not reached yet, so what it returns may be shorter. It never
	// waits for the device. It fails where base is not reached, or where the
	// stream of a stamp had failed. Resolution and rounding are the device's: at
	// worst 1 µs for stamps of a few seconds.
	Times(base Stamp, stamps ...Stamp) ([]time.Duration, error)
	// Reuse gives stamps back that nobody will ask for again, reached or not.
	Reuse(stamps ...Stamp)
}

// Stamp is a point in a stream whose time can be asked for. It belongs to the
// device that made it until it is given back.
type Stamp interface {
	// Of names the stream.
	Of() string
}

// Counter is a Stream that counts.
type Counter interface {
	// Launches returns how many kernels were queued so far, as the device runs
	// them: an op may be several, and a library's call is one.
	Launches() int64
}
