package train

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/cpu"
	"longship/gpu/tensor"
)

func TestTransferMovesInPieces(t *testing.T) {
	dev, err := cpu.New()
	require.NoError(t, err)
	st, err := dev.NewStream("compute")
	require.NoError(t, err)
	m, err := newTransfer(dev, st)
	require.NoError(t, err)
	for _, n := range []int{1, bounceBytes, 2*bounceBytes + 5} {
		buf, err := dev.Alloc(int64(n))
		require.NoError(t, err)
		x := tensor.New(buf, 0, tensor.U8, n)
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(i * 7 >> 3)
		}
		ctx := context.Background()
		require.NoError(t, m.Write(ctx, x, want))
		got := make([]byte, n)
		require.NoError(t, m.Read(ctx, x, got))
		require.True(t, bytes.Equal(want, got), "%d bytes differ", n)
		require.ErrorContains(t, m.Read(ctx, x, got[1:]), "u8")
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, m.Write(cancelled, x, want), context.Canceled)
		require.NoError(t, buf.Free())
	}
	require.NoError(t, m.close())
	require.NoError(t, st.Close())
	require.NoError(t, dev.Close())
}
