//go:build cuda

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/cpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/dtype"
)

// matrices is a product with its operands on the card, and a float32 image of
// them, rounded alike, on the host.
type matrices struct {
	dev, host ops.Gemm
	image     gpu.Buffer // the bytes of the card's buffer
	buf, ref  gpu.Buffer
}

// Products in every form that the models use, at shapes that do not divide
// evenly and at the widths of FLUX.2, against the CPU's.
func TestGemmAgainstTheCPU(t *testing.T) {
	d := open(t)
	host, err := cpu.New()
	require.NoError(t, err)
	for _, types := range [][2]tensor.DType{{tensor.BF16, tensor.BF16}, {tensor.BF16, tensor.F32}, {tensor.F32, tensor.F32}} {
		for _, c := range []struct {
			m, n, k        int
			transA, transB bool
			gap            int // columns between the rows of every operand
			beta           float32
		}{
			{1, 1, 1, false, false, 0, 0},
			{7, 5, 3, false, true, 0, 0},
			{33, 129, 70, true, false, 5, 1},
			{33, 129, 70, true, true, 3, -0.5},
			{512, 6144, 128, false, true, 0, 0},
			{512, 128, 6144, false, false, 128, 0},
			{333, 16, 6144, false, true, 0, 0},
			{333, 6144, 16, false, true, 0, 1},
			{16, 6144, 333, true, false, 0, 1},
			{1, 6144, 256, false, true, 0, 0},
		} {
			t.Run(fmt.Sprintf("%s to %s, %d x %d x %d, %t %t, gap %d, beta %g", types[0], types[1], c.m, c.n, c.k, c.transA, c.transB, c.gap, c.beta), func(t *testing.T) {
				g := ops.Gemm{TransA: c.transA, TransB: c.transB, Alpha: 0.75, Beta: c.beta}
				x := place(t, d, host, g, types, [3]int{c.m, c.n, c.k}, c.gap)
				s, err := d.NewStream("s")
				require.NoError(t, err)
				s.Copy(gpu.Region{Buf: x.buf, Len: x.buf.Size()}, gpu.Region{Buf: x.image, Len: x.buf.Size()})
				require.NoError(t, x.dev.Check())
				s.Launch(x.dev)
				s.Copy(gpu.Region{Buf: x.image, Len: x.buf.Size()}, gpu.Region{Buf: x.buf, Len: x.buf.Size()})
				require.NoError(t, s.Close())
				require.NoError(t, x.host.Host(cpu.Workers{}))
				tol := 1e-5
				if types[1] == tensor.BF16 {
					tol = 1.0 / 128
				}
				got := x.dev.C
				got.Buf = x.image
				require.Less(t, distance(values(got), values(x.host.C)), tol)
				for _, b := range []gpu.Buffer{x.image, x.buf, x.ref} {
					require.NoError(t, b.Free())
				}
			})
		}
	}
	require.NoError(t, d.Close())
}

func place(t *testing.T, d *Device, host *cpu.Device, g ops.Gemm, types [2]tensor.DType, size [3]int, gap int) matrices {
	m, n, k := size[0], size[1], size[2]
	shapes := [3][2]int{{m, n}, {m, k}, {k, n}}
	if g.TransA {
		shapes[1] = [2]int{k, m}
	}
	if g.TransB {
		shapes[2] = [2]int{n, k}
	}
	var at [4]int64
	for i, s := range shapes {
		at[i+1] = at[i] + (int64(s[0]*(s[1]+gap)*4)+255)/256*256
	}
	x := matrices{dev: g, host: g}
	var err error
	x.buf, err = d.Alloc(at[3])
	require.NoError(t, err)
	x.image, err = d.AllocHost(at[3])
	require.NoError(t, err)
	x.ref, err = host.Alloc(at[3])
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(uint64(m), uint64(n)))
	var dev, ref [3]tensor.Tensor
	for i, s := range shapes {
		dt := types[0]
		if i == 0 {
			dt = types[1]
		}
		im := tensor.New(x.image, at[i], dt, s[0], s[1])
		ref[i] = tensor.New(x.ref, at[i], tensor.F32, s[0], s[1])
		im.Stride, ref[i].Stride = s[1]+gap, s[1]+gap
		v := make([]float32, s[1])
		for row := range s[0] {
			for j := range v {
				v[j] = float32(r.NormFloat64())
			}
			put(im.RowRange(row, row+1), v)
			copy(tensor.Host[float32](ref[i].RowRange(row, row+1)), values(im.RowRange(row, row+1)))
		}
		dev[i] = im
		dev[i].Buf = x.buf
	}
	x.dev.C, x.dev.A, x.dev.B = dev[0], dev[1], dev[2]
	x.host.C, x.host.A, x.host.B = ref[0], ref[1], ref[2]
	return x
}

// put writes a row of float32 or bf16.
func put(row tensor.Tensor, v []float32) {
	if row.DType == tensor.F32 {
		copy(tensor.Host[float32](row), v)
		return
	}
	dtype.F32ToBF16(tensor.Host[uint16](row), v)
}

// values reads a tensor of float32 or bf16 in host memory.
func values(t tensor.Tensor) []float32 {
	var out []float32
	for i := range t.Rows() {
		row := t.RowRange(i, i+1)
		if t.DType == tensor.F32 {
			out = append(out, tensor.Host[float32](row)...)
			continue
		}
		v := make([]float32, row.Len())
		dtype.BF16ToF32(v, tensor.Host[uint16](row))
		out = append(out, v...)
	}
	return out
}

// distance is ‖a − b‖ / ‖b‖; NaN where either has one.
func distance(a, b []float32) float64 {
	var diff, norm float64
	for i := range b {
		d := float64(a[i]) - float64(b[i])
		diff += d * d
		norm += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(diff / norm)
}

func TestGemmTypesThatDoNotGoTogether(t *testing.T) {
	d := open(t)
	s, buf, host := parts(t, d, 1<<16)
	of := func(dt tensor.DType) tensor.Tensor { return tensor.New(buf, 0, dt, 8, 8) }
	s.Launch(ops.Gemm{C: of(tensor.F32), A: of(tensor.F32), B: of(tensor.BF16), Alpha: 1})
	require.EqualError(t, s.Sync(), "stream s: gemm: a is f32 and b is bf16, want both bf16 or both f32")
	close2(t, d, s, buf, host)
}

// Two devices, and two calls of one, give the same bits.
func TestGemmGivesTheSameBits(t *testing.T) {
	var first []byte
	for range 2 {
		d := open(t)
		host, err := cpu.New()
		require.NoError(t, err)
		x := place(t, d, host, ops.Gemm{TransA: true, Alpha: 1}, [2]tensor.DType{tensor.BF16, tensor.F32}, [3]int{16, 640, 4608}, 0)
		s, err := d.NewStream("s")
		require.NoError(t, err)
		for range 3 {
			s.Copy(gpu.Region{Buf: x.buf, Len: x.buf.Size()}, gpu.Region{Buf: x.image, Len: x.buf.Size()})
			s.Launch(x.dev)
			s.Copy(gpu.Region{Buf: x.image, Len: x.dev.C.Bytes()}, x.dev.C.Region())
			require.NoError(t, s.Sync())
			got := append([]byte(nil), x.image.Host()[:x.dev.C.Bytes()]...)
			if first == nil {
				first = got
			}
			require.Equal(t, first, got)
		}
		require.NoError(t, s.Close())
		for _, b := range []gpu.Buffer{x.image, x.buf, x.ref} {
			require.NoError(t, b.Free())
		}
		require.NoError(t, d.Close())
	}
}
