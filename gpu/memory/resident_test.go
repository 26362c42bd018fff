package memory_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/cpu"
	"longship/gpu/memory"
	"longship/gpu/tensor"
)

func TestResidentHoldsEveryUnit(t *testing.T) {
	set := modelOf(2, 1, 1)
	dev, err := cpu.New()
	require.NoError(t, err)
	r, err := memory.NewResident(context.Background(), dev, set)
	require.NoError(t, err)
	require.EqualValues(t, 255, tensor.Host[byte](r.Outer()["outer.w"].Data)[0])
	for i, u := range set.Units {
		p, err := r.Acquire(u.Block)
		require.NoError(t, err)
		for _, b := range tensor.Host[byte](p[u.Name+".w"].Data) {
			require.EqualValues(t, i, b)
		}
		r.Release(u.Block)
	}

	// Its layout is the same without memory.
	l := r.Layout()
	for b := range set.Blocks() {
		want, err := r.Acquire(b)
		require.NoError(t, err)
		have, err := l.Acquire(b)
		require.NoError(t, err)
		require.Len(t, have, len(want))
		for name, w := range want {
			w.Data.Buf = nil
			require.Equal(t, w, have[name])
		}
	}
	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	require.NoError(t, dev.Close())
}

func TestResidentNamesADamagedUnit(t *testing.T) {
	set := modelOf(1, 2)
	set.Units[1].Sum[0] ^= 1
	dev, err := cpu.New()
	require.NoError(t, err)
	_, err = memory.NewResident(context.Background(), dev, set)
	require.ErrorIs(t, err, memory.ErrDamaged)
	require.ErrorContains(t, err, set.Units[1].Name)
	require.NoError(t, dev.Close())
}
