package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Workers runs loops on as many cores as GOMAXPROCS gives. It holds nothing, so
// that two streams share no state through it.
type Workers struct{}

// For runs body over [0, n) in pieces of grain (the last may be shorter). The
// pieces depend on n and grain alone; which core runs one does not matter to
// kernels whose pieces write apart.
func (Workers) For(n, grain int, body func(lo, hi int)) {
	grain = max(grain, 1)
	pieces := (n + grain - 1) / grain
	procs := min(runtime.GOMAXPROCS(0), pieces)
	if procs <= 1 {
		for lo := 0; lo < n; lo += grain {
			body(lo, min(lo+grain, n))
		}
		return
	}
	var next atomic.Int64
	work := func() {
		for {
			lo := (int(next.Add(1)) - 1) * grain
			if lo >= n {
				return
			}
			body(lo, min(lo+grain, n))
		}
	}
	var wg sync.WaitGroup
	for range procs - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
