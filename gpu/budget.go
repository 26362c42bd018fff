package gpu

import (
	"context"
	"fmt"
	"sync"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/semaphore"
)

// Budget shares a card's memory between the stages of a run. A stage takes one
// lease, whole, before it loads anything, and gives it back when its memory is
// free again; phases such as "encode, then free, then train" follow from that.
//
// Leases are granted in the order they were asked for: a small one never
// overtakes a large one, so nobody starves. One lease a stage is the rule that
// keeps this free of deadlocks: a stage that held one and waited for a second
// could wait for itself. Safe for concurrent use.
type Budget struct {
	total  int64
	beside int64
	sem    *semaphore.Weighted

	mu   sync.Mutex
	held map[string]int64 // leases held or waited for, by stage
}

// NewBudget returns a budget of total bytes.
func NewBudget(total int64) *Budget {
	return &Budget{total: total, sem: semaphore.NewWeighted(total), held: map[string]int64{}}
}

// Beside says that bytes of the card are taken outside the budget: context,
// libraries. It is called before the budget is shared.
func (b *Budget) Beside(bytes int64) *Budget {
	b.beside = bytes
	return b
}

// Cap returns the limit of the card (`vram`) that leaves a budget of bytes.
func (b *Budget) Cap(bytes int64) int64 { return bytes + b.beside }

// Total returns the bytes of the whole budget.
func (b *Budget) Total() int64 { return b.total }

// Acquire waits until bytes are free and everyone who asked earlier has been
// served. The caller gives the lease back with release, which may be called
// more than once. Acquire fails at once where the lease can never fit or where
// the stage has one already, and with ctx's error where ctx ends first.
func (b *Budget) Acquire(ctx context.Context, stage string, bytes int64) (release func(), err error) {
	if bytes > b.total {
		return nil, fmt.Errorf("%s of the card are needed and the whole budget is %s: raise vram, or let the stage take less (offload, smaller resolution or batch): %w",
			size(bytes), size(b.total), ErrOutOfMemory)
	}
	if err := b.enter(stage, bytes); err != nil {
		return nil, err
	}
	if err := b.sem.Acquire(ctx, bytes); err != nil {
		b.leave(stage)
		return nil, fmt.Errorf("wait for %s of the card: %w", size(bytes), context.Cause(ctx))
	}
	return sync.OnceFunc(func() {
		b.leave(stage)
		b.sem.Release(bytes)
	}), nil
}

func (b *Budget) enter(stage string, bytes int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if have, ok := b.held[stage]; ok {
		return fmt.Errorf("stage %s asks for a lease of %s and has one of %s: a stage takes one lease, whole", stage, size(bytes), size(have))
	}
	b.held[stage] = bytes
	return nil
}

func (b *Budget) leave(stage string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, stage)
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }
