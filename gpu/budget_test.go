package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBudgetIsNeverExceeded(t *testing.T) {
	const total, stages, rounds = 100, 20, 200
	b := gpu.NewBudget(total)
	var used atomic.Int64
	var wg sync.WaitGroup
	for i := range stages {
		wg.Go(func() {
			for r := range rounds {
				need := int64(1 + (i*37+r*11)%total)
				release, err := b.Acquire(context.Background(), fmt.Sprintf("stage %d", i), need)
				if err != nil {
					t.Error(err)
					return
				}
				if used.Add(need) > total {
					t.Error("more was lent than there is")
				}
				used.Add(-need)
				release()
				release()
			}
		})
	}
	wg.Wait()
}

// A large lease is not starved by small ones that come after it and would fit.
func TestBudgetIsFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := gpu.NewBudget(10)
		ctx := context.Background()
		first, err := b.Acquire(ctx, "first", 5)
		require.NoError(t, err)
		var order []string
		var wg sync.WaitGroup
		ask := func(stage string, bytes int64) {
			wg.Go(func() {
				release, err := b.Acquire(ctx, stage, bytes)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, stage)
				release()
			})
			synctest.Wait()
		}
		ask("large", 10)
		ask("small", 1)
		require.Empty(t, order, "small must not overtake large")
		first()
		wg.Wait()
		require.Equal(t, []string{"large", "small"}, order)
	})
}

func TestBudgetRefuses(t *testing.T) {
	b := gpu.NewBudget(4 << 30)
	ctx := context.Background()
	_, err := b.Acquire(ctx, "train", 5<<30)
	require.ErrorIs(t, err, gpu.ErrOutOfMemory)
	require.ErrorContains(t, err, "5.0 GiB of the card are needed and the whole budget is 4.0 GiB")

	release, err := b.Acquire(ctx, "train", 1<<30)
	require.NoError(t, err)
	_, err = b.Acquire(ctx, "train", 1<<30)
	require.EqualError(t, err, "stage train asks for a lease of 1.0 GiB and has one of 1.0 GiB: a stage takes one lease, whole")

	cause := errors.New("stopped")
	stopped, cancel := context.WithCancelCause(ctx)
	cancel(cause)
	_, err = b.Acquire(stopped, "encode", 4<<30)
	require.ErrorIs(t, err, cause)

	release()
	whole, err := b.Acquire(ctx, "encode", 4<<30) // what failed left nothing behind
	require.NoError(t, err)
	whole()
	require.Equal(t, int64(4<<30), b.Total())
}
