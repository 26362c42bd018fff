package hostmem

import "github.com/shirou/gopsutil/v4/mem"

// Available returns the bytes of the machine that programs can have without
// others being swapped out, false where the system does not tell. A limit of the
// process's group below that is not seen.
func Available() (bytes int64, ok bool) {
	m, err := mem.VirtualMemory()
	if err != nil {
		return 0, false
	}
	return int64(m.Available), true
}
