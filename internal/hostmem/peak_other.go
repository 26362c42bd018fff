//go:build !linux

package hostmem

import (
	"os"

	"github.com/shirou/gopsutil/v4/process"
)

// Peak returns the most bytes that were ever resident where the system says
// that, else those that are now.
func Peak() int64 {
	p, err := process.NewProcess(int32(os.Getpid()))
	if err != nil {
		return 0
	}
	m, err := p.MemoryInfo()
	if err != nil {
		return 0
	}
	return int64(max(m.HWM, m.RSS))
}
