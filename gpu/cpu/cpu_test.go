package cpu_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu"
	"longship/gpu/cpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kernel is a gpu.Kernel made of a function.
type kernel struct {
	name  string
	host  func(w gpu.Workers) error
	check error
}

func (k kernel) Name() string             { return k.name }
func (k kernel) Host(w gpu.Workers) error { return k.host(w) }
func (k kernel) Check() error             { return k.check }
func does(f func()) kernel {
	return kernel{name: "does", host: func(gpu.Workers) error { f(); return nil }}
}
func fails(name string, err error) gpu.Kernel {
	return kernel{name: name, host: func(gpu.Workers) error { return err }}
}

func openBare(t testing.TB) *cpu.Device {
	d, err := cpu.New()
	require.NoError(t, err)
	return d
}

func open(t testing.TB) *cpu.Device {
	d := openBare(t)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func stream(t testing.TB, d *cpu.Device, name string) gpu.Stream {
	s, err := d.NewStream(name)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestWorkRunsInOrderAndQueuingDoesNotWait(t *testing.T) {
	s := stream(t, open(t), "s")
	gate := make(chan struct{})
	s.Do(func() error { <-gate; return nil })
	var got []int
	for i := range 10_000 {
		s.Launch(does(func() { got = append(got, i) }))
	}
	require.Empty(t, got)
	close(gate)
	require.NoError(t, s.Sync())
	require.Len(t, got, 10_000)
	require.True(t, slices.IsSorted(got))
}

func TestEventsOrderStreams(t *testing.T) {
	d := open(t)
	a, b := stream(t, d, "a"), stream(t, d, "b")
	gate := make(chan struct{})
	value := 0
	a.Launch(does(func() { <-gate; value = 1 }))
	written := a.Record()
	b.Wait(written)
	seen := 0
	b.Launch(does(func() { seen = value }))
	read := b.Record()
	a.Wait(read)
	a.Launch(does(func() { value = 2 }))
	require.False(t, written.Done())
	require.False(t, read.Done())
	close(gate)
	require.NoError(t, read.Await(context.Background()))
	require.True(t, written.Done())
	require.NoError(t, a.Sync())
	require.Equal(t, 1, seen)
	require.Equal(t, 2, value)
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	s := stream(t, open(t), "s")
	gate := make(chan struct{})
	s.Do(func() error { <-gate; return nil })
	e := s.Record()
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, e.Await(ctx), context.DeadlineExceeded)
	close(gate)
	require.NoError(t, e.Await(context.Background()))
}

func TestFirstErrorSticksAndLaterWorkIsDropped(t *testing.T) {
	d := open(t)
	s := stream(t, d, "compute")
	first := errors.New("first")
	ran := false
	s.Launch(fails("gemm", first))
	s.Launch(fails("norm", errors.New("second")))
	s.Launch(does(func() { ran = true }))
	s.Do(func() error { ran = true; return nil })
	e := s.Record()
	require.ErrorIs(t, e.Await(context.Background()), first)
	require.EqualError(t, s.Sync(), "stream compute: gemm: first")
	require.False(t, ran)

	other := stream(t, d, "other") // a stream that waits for a failed one fails too
	other.Wait(e)
	other.Launch(does(func() { ran = true }))
	require.ErrorIs(t, other.Sync(), first)
	require.False(t, ran)
	require.ErrorIs(t, s.Close(), first)
	require.ErrorIs(t, s.Close(), first)
}

func TestFaultsAtLaunch(t *testing.T) {
	d := open(t)
	s := stream(t, d, "s")
	bad := errors.New("x is f32 [2], want 3 elements")
	s.Launch(kernel{name: "scale", check: bad, host: func(gpu.Workers) error { panic("must not run") }})
	require.ErrorIs(t, s.Sync(), bad)

	s = stream(t, d, "copies")
	buf, err := d.Alloc(8)
	require.NoError(t, err)
	defer buf.Free()
	s.Copy(gpu.Region{Buf: buf, Len: 8}, gpu.Region{Buf: buf, Len: 4})
	require.EqualError(t, s.Sync(), "stream copies: copy: 4 bytes to a region of 8")

	s = stream(t, d, "failed")
	s.Fail(gpu.ErrOutOfMemory)
	require.ErrorIs(t, s.Sync(), gpu.ErrOutOfMemory)
}

func TestBuffers(t *testing.T) {
	d := open(t)
	for _, n := range []int64{0, 1, 100, 1 << 20, 20 << 20} {
		a, err := d.Alloc(n)
		require.NoError(t, err)
		b, err := d.AllocHost(n)
		require.NoError(t, err)
		require.Equal(t, n, a.Size())
		if n > 0 {
			require.Zero(t, uintptr(unsafe.Pointer(&a.Host()[0]))%64)
			for i := range a.Host() {
				a.Host()[i] = byte(i * 7)
			}
		}
		s := stream(t, d, "copy")
		s.Copy(gpu.Region{Buf: b, Len: n}, gpu.Region{Buf: a, Len: n})
		require.NoError(t, s.Sync())
		require.Equal(t, a.Host(), b.Host())
		require.NoError(t, a.Free())
		require.NoError(t, a.Free())
		require.NoError(t, b.Free())
	}
	_, err := d.Alloc(1 << 60)
	require.ErrorIs(t, err, gpu.ErrOutOfMemory)
	require.ErrorContains(t, err, "1152921504606846976 bytes")
}

func TestCloseNamesWhatIsOpen(t *testing.T) {
	d, err := cpu.New()
	require.NoError(t, err)
	b, err := d.Alloc(10)
	require.NoError(t, err)
	s, err := d.NewStream("s")
	require.NoError(t, err)
	require.EqualError(t, d.Close(), "close cpu device: 1 streams and 1 buffers (10 bytes) are still open")
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.NoError(t, b.Free())
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
}

func TestWorkersCoverTheRangeInFixedPieces(t *testing.T) {
	for _, c := range []struct{ n, grain int }{{0, 4}, {1, 4}, {4, 4}, {5, 4}, {1000, 7}, {3, 0}} {
		grain := max(c.grain, 1)
		seen := make([]atomic.Int32, c.n)
		cpu.Workers{}.For(c.n, c.grain, func(lo, hi int) {
			if lo%grain != 0 || hi != min(lo+grain, c.n) {
				t.Errorf("piece [%d,%d) of %d by %d", lo, hi, c.n, c.grain)
			}
			for i := lo; i < hi; i++ {
				seen[i].Add(1)
			}
		})
		for i := range seen {
			require.EqualValues(t, 1, seen[i].Load())
		}
	}
}

func TestInfoNamesTheBLAS(t *testing.T) {
	info := open(t).Info()
	require.Equal(t, "cpu", info.Kind)
	require.Positive(t, info.TotalBytes)
	require.NotEmpty(t, info.Libraries["blas"])
}

func BenchmarkLaunch(b *testing.B) {
	s := stream(b, open(b), "s")
	k := does(func() {})
	for b.Loop() {
		s.Launch(k)
	}
	require.NoError(b, s.Sync())
}

func BenchmarkCopy(b *testing.B) {
	d := open(b)
	const n = 64 << 20
	x, err := d.Alloc(n)
	require.NoError(b, err)
	defer x.Free()
	y, err := d.Alloc(n)
	require.NoError(b, err)
	defer y.Free()
	s := stream(b, d, "s")
	b.SetBytes(n)
	for b.Loop() {
		s.Copy(gpu.Region{Buf: y, Len: n}, gpu.Region{Buf: x, Len: n})
		require.NoError(b, s.Sync())
	}
}
