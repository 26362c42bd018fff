package memory

import "sync"

// meter adds up progress from several goroutines and tells it in order.
type meter struct {
	mu          sync.Mutex
	done, total int64
	tell        func(done, total int64)
}

func newMeter(total int64, tell func(done, total int64)) *meter {
	return &meter{total: total, tell: tell}
}

func (m *meter) add(n int64) {
	if m.tell == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += n
	m.tell(m.done, m.total)
}
