package profile

// memory follows what is taken over the steps of a run.
type memory struct {
	samples  int
	peak     int64
	low      int64 // from the warm-up on
	high     int64
	last     int64
	hostPeak int64
}

// Memory takes in what the process has of the device's memory, as its driver
// reports it, and of the host's, in bytes, at the end of a step; 0 is not known.
func (r *Recorder) Memory(device, host int64) {
	if r == nil {
		return
	}
	m := &r.memory
	m.samples++
	m.peak, m.hostPeak, m.last = max(m.peak, device), max(m.hostPeak, host), device
	if m.samples <= Warmup {
		return
	}
	if m.low == 0 || device < m.low {
		m.low = device
	}
	m.high = max(m.high, device)
}

func (m *memory) summary() Memory {
	return Memory{Peak: m.peak, Steady: m.last, Drift: ratio(float64(m.high-m.low), float64(m.high)), HostPeak: m.hostPeak}
}
