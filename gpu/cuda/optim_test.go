//go:build cuda

package cuda

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/rng"
)

// updates are optimisers over tensors that lie one behind the other in a buffer.
type updates struct {
	buf   gpu.Buffer
	bytes int64
}

func (u *updates) take(dt tensor.DType, n int) tensor.Tensor {
	t := tensor.New(u.buf, u.bytes, dt, n)
	u.bytes = (u.bytes + t.Bytes() + 255) / 256 * 256
	return t
}

// adam makes an update of n parameters of a type, with gradients of the same.
func (u *updates) adam(eight bool, dt tensor.DType, n int) gpu.Kernel {
	a := ops.AdamParams{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01, Step: u.take(tensor.I32, 1)}
	p, g, round := u.take(dt, n), u.take(dt, n), rng.New(3, "test")
	if !eight {
		return ops.AdamW{P: p, G: g, M: u.take(tensor.F32, n), V: u.take(tensor.F32, n), Adam: a, Round: round}
	}
	return ops.AdamW8{P: p, G: g, MCode: u.take(tensor.U8, n), VCode: u.take(tensor.U8, n),
		MMax: u.take(tensor.F32, ops.Adam8Blocks(n)), VMax: u.take(tensor.F32, ops.Adam8Blocks(n)),
		Adam: a, DecayAfter: true, FixSign: true, Round: round}
}

// run takes three steps on a device, from states of zero, and returns all that
// is left in memory.
func (u *updates) run(t *testing.T, d gpu.Device, eight bool, dt tensor.DType, n int) []byte {
	u.buf, u.bytes = nil, 0
	u.adam(eight, dt, n)
	size := u.bytes
	s, err := d.NewStream("test")
	require.NoError(t, err)
	host, err := d.AllocHost(size)
	require.NoError(t, err)
	buf, err := d.Alloc(size)
	require.NoError(t, err)

	clear(host.Host())
	u.buf, u.bytes = host, 0
	u.take(tensor.I32, 1)
	for _, name := range []string{"p", "g"} {
		x, to := make([]float32, n), u.take(dt, n)
		rng.New(4, name).FillNormal(x, 0)
		if dt == tensor.BF16 {
			dtype.F32ToBF16(tensor.Host[uint16](to), x)
		} else {
			copy(to.Float32s(), x)
		}
	}
	s.Copy(gpu.Region{Buf: buf, Len: size}, gpu.Region{Buf: host, Len: size})
	u.buf, u.bytes = buf, 0
	k := u.adam(eight, dt, n)
	for range 3 {
		s.Launch(ops.CountStep{Step: tensor.New(buf, 0, tensor.I32, 1)})
		s.Launch(k)
	}
	s.Copy(gpu.Region{Buf: host, Len: size}, gpu.Region{Buf: buf, Len: size})
	require.NoError(t, s.Sync())
	left := slices.Clone(host.Host())
	require.NoError(t, s.Close())
	require.NoError(t, buf.Free())
	require.NoError(t, host.Free())
	return left
}

// An update leaves the bits that the host's leaves, stochastic rounding
// included, also where every block of the kernel takes several pieces.
func TestUpdatesAreTheHosts(t *testing.T) {
	d := open(t)
	host, err := cpu.New()
	require.NoError(t, err)
	for _, n := range []int{1000, optimBlocks*ops.Adam8Block + 300} {
		for _, dt := range []tensor.DType{tensor.F32, tensor.BF16} {
			for _, eight := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d %s eight=%v", n, dt, eight), func(t *testing.T) {
					var u updates
					want, got := u.run(t, host, eight, dt, n), u.run(t, d, eight, dt, n)
					for i := range want {
						if want[i] != got[i] {
							t.Fatalf("byte %d of %d is %#x, the host's is %#x", i, len(want), got[i], want[i])
						}
					}
				})
			}
		}
	}
	require.NoError(t, host.Close())
	require.NoError(t, d.Close())
}
