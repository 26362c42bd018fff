//go:build cuda

package cuda

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
)

// BenchmarkLaunch is what queuing a kernel costs: the goroutine that queues it,
// and all together until it is done.
func BenchmarkLaunch(b *testing.B) {
	d := open(b)
	s, buf, host := parts(b, d, 256)
	at := s.ptr(tensor.New(buf, 0, tensor.I32, 3))
	for _, drain := range []bool{false, true} {
		b.Run(fmt.Sprintf("wait=%t", drain), func(b *testing.B) {
			n := 0
			for b.Loop() {
				_ = s.kernel("test_nothing", dim{1}, dim{32}, 0, at, at, at, 1, 2)
				if n++; n%2000 == 0 {
					if !drain {
						b.StopTimer()
					}
					require.NoError(b, s.Sync())
					if !drain {
						b.StartTimer()
					}
				}
			}
			require.NoError(b, s.Sync())
		})
	}
	close2(b, d, s, buf, host)
}

// BenchmarkSync is a round trip of one event.
func BenchmarkSync(b *testing.B) {
	d := open(b)
	s, buf, host := parts(b, d, 256)
	for b.Loop() {
		_ = s.kernel("test_nothing", dim{1}, dim{32}, 0, 0, 0, 0, 1, 2)
		require.NoError(b, s.Sync())
	}
	close2(b, d, s, buf, host)
}

// BenchmarkStamp is what a stamp costs beside a kernel, on the host and the card,
// and what reading it does.
func BenchmarkStamp(b *testing.B) {
	d := open(b)
	s, buf, host := parts(b, d, 256)
	const n = 500 // kernels of a pass
	pass := func(b *testing.B, stamped bool) (stamps []gpu.Stamp) {
		for range n {
			if stamped {
				stamps = append(stamps, d.Stamp(s))
			}
			_ = s.kernel("test_nothing", dim{1}, dim{32}, 0, 0, 0, 0, 1, 2)
		}
		require.NoError(b, s.Sync())
		return stamps
	}
	for _, stamped := range []bool{false, true} {
		b.Run(fmt.Sprintf("%d kernels, stamped=%t", n, stamped), func(b *testing.B) {
			for b.Loop() {
				d.Reuse(pass(b, stamped)...)
			}
		})
	}
	b.Run(fmt.Sprintf("%d read", n), func(b *testing.B) {
		stamps := pass(b, true)
		for b.Loop() {
			times, err := d.Times(stamps[0], stamps...)
			require.NoError(b, err)
			require.Len(b, times, n)
		}
	})
	close2(b, d, s, buf, host)
}

// BenchmarkCopy is the bus, at the size of a unit of FLUX.2-dev.
func BenchmarkCopy(b *testing.B) {
	const unit, n = 490_733_568, 10
	d := open(b)
	in, dev, up := parts(b, d, 2*unit)
	out, err := d.NewStream("out")
	require.NoError(b, err)
	down, err := d.AllocHost(unit)
	require.NoError(b, err)
	first, second := gpu.Region{Buf: dev, Len: unit}, gpu.Region{Buf: dev, Off: unit, Len: unit}
	for _, c := range []struct {
		name    string
		in, out bool
	}{{"to the card", true, false}, {"from the card", false, true}, {"both ways", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				for range n {
					if c.in {
						in.Copy(first, gpu.Region{Buf: up, Len: unit})
					}
					if c.out {
						out.Copy(gpu.Region{Buf: down, Len: unit}, second)
					}
				}
				require.NoError(b, in.Sync())
				require.NoError(b, out.Sync())
			}
			ways := 0.0
			for _, on := range []bool{c.in, c.out} {
				if on {
					ways++
				}
			}
			b.ReportMetric(ways*n*unit*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
		})
	}
	require.NoError(b, out.Close())
	close2(b, d, in, dev, up, down)
}

// BenchmarkHostMemory is the taking of page-locked memory in the arena's pieces.
func BenchmarkHostMemory(b *testing.B) {
	d := open(b)
	b.SetBytes(2 << 30)
	for b.Loop() {
		buf, err := d.AllocHost(2 << 30)
		require.NoError(b, err)
		require.NoError(b, buf.Free())
	}
	require.NoError(b, d.Close())
}

// BenchmarkGemm has the products of FLUX.2-dev's blocks at 512 and 1024 px with
// 512 text tokens, and those of a rank-16 adapter.
func BenchmarkGemm(b *testing.B) {
	d := open(b)
	s, buf, host := parts(b, d, 4<<30)
	fill(b, s, buf)
	for _, tokens := range []int{1536, 4608} {
		for _, c := range []struct {
			name           string
			m, n, k        int
			transA, transB bool
		}{
			{"single 1", tokens, 55296, 6144, false, true},
			{"single 1 dx", tokens, 6144, 55296, false, false},
			{"single 2", tokens, 6144, 24576, false, true},
			{"single 2 dx", tokens, 24576, 6144, false, false},
			{"double qkv", tokens - 512, 18432, 6144, false, true},
			{"double mlp", tokens - 512, 36864, 6144, false, true},
			{"double text mlp", 512, 36864, 6144, false, true},
			{"adapter down", tokens, 16, 6144, false, true},
			{"adapter up", tokens, 55296, 16, false, true},
			{"adapter dA", 16, 6144, tokens, true, false},
		} {
			b.Run(fmt.Sprintf("%s %dx%dx%d", c.name, c.m, c.n, c.k), func(b *testing.B) {
				g := ops.Gemm{TransA: c.transA, TransB: c.transB, Alpha: 1}
				g.A, g.B, g.C = rotated(buf, 0, c.m, c.k, c.transA), rotated(buf, 1, c.k, c.n, c.transB), rotated(buf, 2, c.m, c.n, false)
				s.Launch(g)
				require.NoError(b, s.Sync())
				const n = 20
				for b.Loop() {
					for range n {
						s.Launch(g)
					}
					require.NoError(b, s.Sync())
				}
				seconds := b.Elapsed().Seconds() / float64(b.N) / n
				b.ReportMetric(float64(g.Cost().FLOPs)/seconds/1e12, "TFLOP/s")
				b.ReportMetric(seconds*1e6, "us/gemm")
			})
		}
	}
	close2(b, d, s, buf, host)
}

// rotated is a bf16 matrix in third i of the buffer.
func rotated(buf gpu.Buffer, i int64, rows, cols int, trans bool) tensor.Tensor {
	if trans {
		rows, cols = cols, rows
	}
	return tensor.New(buf, i*buf.Size()/3/256*256, tensor.BF16, rows, cols)
}

// fill puts random bf16 of usual size into a buffer: products of zeros run faster.
func fill(b *testing.B, s *stream, buf gpu.Buffer) {
	const piece = 64 << 20
	host, err := s.dev.AllocHost(piece)
	require.NoError(b, err)
	x := uint32(1)
	words := tensor.Host[uint16](tensor.New(host, 0, tensor.BF16, piece/2))
	for i := range words {
		x = x*1664525 + 1013904223
		words[i] = uint16(0x3f00 | x>>31<<15 | x>>20&0xff) // ±[0.5, 2)
	}
	for off := int64(0); off < buf.Size(); off += piece {
		s.Copy(gpu.Region{Buf: buf, Off: off, Len: piece}, gpu.Region{Buf: host, Len: piece})
	}
	require.NoError(b, s.Sync())
	require.NoError(b, host.Free())
}
