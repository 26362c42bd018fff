package gputest

import "longship/gpu"

// Counting is a device that counts how often memory is taken from it, of the
// card or the host.
type Counting struct {
	gpu.Device
	Taken int
}

// Alloc counts and passes on.
func (d *Counting) Alloc(n int64) (gpu.Buffer, error) {
	d.Taken++
	return d.Device.Alloc(n)
}

// AllocHost counts and passes on.
func (d *Counting) AllocHost(n int64) (gpu.Buffer, error) {
	d.Taken++
	return d.Device.AllocHost(n)
}
