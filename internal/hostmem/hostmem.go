// Package hostmem says how much memory this process holds that the system
// cannot take back: what a stage must give back when it is done.
package hostmem

import (
	"os"
	"runtime"
	"runtime/debug"

	"github.com/shirou/gopsutil/v4/process"
)

// Release gives the system all memory that the Go heap does not need, and
// returns the anonymous bytes that the process still holds.
func Release() int64 {
	debug.FreeOSMemory()
	return Anonymous()
}

// Anonymous returns the resident bytes of the process that belong to no file
// (RssAnon and RssShmem), where the system tells; the whole resident set where it does not;
// what the Go runtime holds where nothing is known.
func Anonymous() int64 {
	if n, ok := rssAnon(); ok {
		return n
	}
	if p, err := process.NewProcess(int32(os.Getpid())); err == nil {
		if m, err := p.MemoryInfo(); err == nil {
			return int64(m.RSS)
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Sys - m.HeapReleased)
}
