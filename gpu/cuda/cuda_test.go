//go:build cuda

package cuda

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu"
	"longship/gpu/cuda/kernels"
	"longship/gpu/gputest"
	"longship/gpu/ops/opstest"
	"longship/gpu/tensor"
)

// testKernels is PTX of the tests' own, so that the device is tested before,
// and apart from, the kernels of the product.
const testKernels = `
.version 7.8
.target sm_80
.address_size 64

.extern .shared .align 16 .b8 dynamic[];

// Nothing, with the arguments of a usual kernel.
.visible .entry test_nothing(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n, .param .f32 f) { ret; }

// at[0] = i, at[1] = f, at[2] = number of the block
.visible .entry test_store(.param .u64 at, .param .u32 i, .param .f32 f)
{
	.reg .b64 %p;
	.reg .b32 %i, %b;
	.reg .f32 %f;
	ld.param.u64 %p, [at];
	ld.param.u32 %i, [i];
	ld.param.f32 %f, [f];
	mov.u32 %b, %ctaid.x;
	st.global.u32 [%p], %i;
	st.global.f32 [%p+4], %f;
	st.global.u32 [%p+8], %b;
	ret;
}

// at[0] = i by way of the last word of the dynamic shared memory
.visible .entry test_shared(.param .u64 at, .param .u32 i, .param .u32 bytes)
{
	.reg .b64 %p;
	.reg .b32 %i, %n, %s;
	ld.param.u64 %p, [at];
	ld.param.u32 %i, [i];
	ld.param.u32 %n, [bytes];
	mov.u32 %s, dynamic;
	add.u32 %s, %s, %n;
	st.shared.u32 [%s+-4], %i;
	ld.shared.u32 %i, [%s+-4];
	st.global.u32 [%p], %i;
	ret;
}
`

func TestMain(m *testing.M) {
	modules = append(modules, kernels.Module{Name: "test", PTX: testKernels, Needs: kernels.Needs})
	goleak.VerifyTestMain(m)
}

// open opens card 0. Without one the test is skipped, or fails where the
// environment says that there must be one.
func open(t testing.TB) *Device {
	d, err := Open(0)
	if err != nil && os.Getenv("LONGSHIP_REQUIRE_GPU") != "1" {
		t.Skipf("no GPU: %v", err)
	}
	require.NoError(t, err)
	return d
}

func bare(t testing.TB) gpu.Device { return open(t) }

func TestConformance(t *testing.T) { gputest.Device(t, bare) }

func TestStreamer(t *testing.T) { gputest.Streamer(t, bare) }

func TestOps(t *testing.T) {
	for _, act := range []tensor.DType{tensor.BF16, tensor.F32} {
		t.Run(act.String(), func(t *testing.T) {
			d := open(t)
			opstest.RunAll(t, d, act)
			require.NoError(t, d.Close())
		})
	}
}

func TestInfo(t *testing.T) {
	d := open(t)
	info := d.Info()
	require.Equal(t, "cuda", info.Kind)
	require.NotEmpty(t, info.Name)
	for _, lib := range []string{"driver", "cublasLt", "compute"} {
		require.Regexp(t, `^\d+\.\d+`, info.Libraries[lib], lib)
	}
	m, err := d.MemInfo()
	require.NoError(t, err)
	require.Positive(t, m.Free)
	require.Positive(t, m.Own)
	require.LessOrEqual(t, m.Free+m.Own, m.Total)
	require.Equal(t, info.TotalBytes, m.Total)
	t.Logf("%+v, %+v, %s", info, m, d.blas.Path())
	require.NoError(t, d.Close())
}

// Arguments, blocks and shared memory reach the kernel as they were given.
func TestLaunch(t *testing.T) {
	d := open(t)
	s, buf, host := parts(t, d, 256)
	require.NoError(t, s.kernel("test_store", dim{3}, dim{32}, 0, s.ptr(tensor.New(buf, 16, tensor.I32, 3)), integer(-5), float(1.5)))
	for i, bytes := range []int{1 << 10, 48 << 10, 49 << 10, 99 << 10} {
		require.NoError(t, s.kernel("test_shared", dim{}, dim{}, bytes, s.ptr(tensor.New(buf, 64+4*int64(i), tensor.I32, 1)), integer(bytes), integer(bytes)))
	}
	s.Copy(gpu.Region{Buf: host, Len: 256}, gpu.Region{Buf: buf, Len: 256})
	require.NoError(t, s.Sync())
	words := tensor.Host[int32](tensor.New(host, 16, tensor.I32, 3))
	require.EqualValues(t, -5, words[0])
	require.Equal(t, float32(1.5), math.Float32frombits(uint32(words[1])))
	require.Contains(t, []int32{0, 1, 2}, words[2])
	require.Equal(t, []int32{1 << 10, 48 << 10, 49 << 10, 99 << 10}, tensor.Host[int32](tensor.New(host, 64, tensor.I32, 4)))

	require.ErrorContains(t, s.kernel("test_other", dim{}, dim{}, 0), "there is no kernel test_other")
	require.NoError(t, s.kernel("test_nothing", dim{}, dim{2048}, 0, 0, 0, 0, 0, 0))
	require.ErrorContains(t, s.Sync(), "stream s: launch test_nothing, grid [1 1 1], block [2048 1 1], 0 bytes of shared memory: invalid argument (CUDA_ERROR_INVALID_VALUE)")
	close2(t, d, s, buf, host)
}

// parts returns a stream, device memory and page-locked memory.
func parts(t testing.TB, d *Device, bytes int64) (*stream, gpu.Buffer, gpu.Buffer) {
	s, err := d.NewStream("s")
	require.NoError(t, err)
	buf, err := d.Alloc(bytes)
	require.NoError(t, err)
	host, err := d.AllocHost(bytes)
	require.NoError(t, err)
	return s.(*stream), buf, host
}

func close2(t testing.TB, d *Device, s *stream, buffers ...gpu.Buffer) {
	_ = s.Close() // its error is the test's
	for _, b := range buffers {
		require.NoError(t, b.Free())
	}
	require.NoError(t, d.Close())
}

func TestForeignMemoryIsRefused(t *testing.T) {
	d := open(t)
	s, buf, host := parts(t, d, 8)
	other, err := gpu.NewDiscard().Alloc(8)
	require.NoError(t, err)
	s.Copy(gpu.Region{Buf: buf, Len: 8}, gpu.Region{Buf: other, Len: 8})
	require.ErrorContains(t, s.Sync(), "copy: a gpu.discardBuffer")
	close2(t, d, s, buf, host)
}

// A kernel that writes where it may not breaks the device: every stream says
// so, with the work that was queued last, and the card can be opened again.
func TestFaultyKernel(t *testing.T) {
	d := open(t)
	s, buf, host := parts(t, d, 256)
	other, err := d.NewStream("other")
	require.NoError(t, err)
	require.NoError(t, s.kernel("test_store", dim{1}, dim{1}, 0, 8, 0, 0))
	e := s.Record()
	require.ErrorContains(t, e.Await(context.Background()), "CUDA_ERROR_ILLEGAL_ADDRESS")
	require.ErrorContains(t, s.Sync(), "stream s: ")
	require.ErrorContains(t, s.Sync(), "s test_store")
	other.Copy(gpu.Region{Buf: host, Len: 256}, gpu.Region{Buf: buf, Len: 256})
	require.ErrorContains(t, other.Sync(), "stream other: ")
	require.Error(t, other.Close())
	close2(t, d, s, buf, host)

	d = open(t)
	s, buf, host = parts(t, d, 256)
	require.NoError(t, s.kernel("test_store", dim{1}, dim{1}, 0, s.ptr(tensor.New(buf, 0, tensor.I32, 3)), 0, 0))
	require.NoError(t, s.Sync())
	close2(t, d, s, buf, host)
}

// What streams, buffers and devices take comes back, and a second round takes
// no more than the first.
func TestMemoryComesBack(t *testing.T) {
	d := open(t)
	before := freeMemory(t, d)
	var low int64 = math.MaxInt64
	for round := range 3 {
		s, buf, host := parts(t, d, 300<<20)
		for range 500 {
			s.Copy(gpu.Region{Buf: buf, Len: 1 << 16}, gpu.Region{Buf: host, Len: 1 << 16})
			s.Record()
		}
		require.NoError(t, s.Sync())
		if round == 0 {
			low = freeMemory(t, d)
		}
		require.InDelta(t, low, freeMemory(t, d), 4<<20)
		require.NoError(t, s.Close())
		require.NoError(t, buf.Free())
		require.NoError(t, host.Free())
	}
	require.InDelta(t, before, freeMemory(t, d), 4<<20)
	require.NoError(t, d.Close())
	d = open(t)
	require.InDelta(t, before, freeMemory(t, d), 4<<20)
	require.NoError(t, d.Close())
}

func freeMemory(t testing.TB, d *Device) int64 {
	m, err := d.MemInfo()
	require.NoError(t, err)
	return m.Free
}

// CUDA events are used again, as many as are under way at once.
func TestEventsAreReused(t *testing.T) {
	d := open(t)
	s, buf, host := parts(t, d, 256)
	for range 50 {
		for range 20 {
			s.Copy(gpu.Region{Buf: buf, Len: 256}, gpu.Region{Buf: host, Len: 256})
			s.Record()
		}
		require.NoError(t, s.Sync())
	}
	var made int
	require.NoError(t, d.thread.call(func() error {
		made = len(d.events) + len(s.open)
		return nil
	}))
	require.Less(t, made, 100)
	close2(t, d, s, buf, host)
}

// What is queued starts soon, also where nobody asks for its result.
func TestQueuedWorkStartsByItself(t *testing.T) {
	d := open(t)
	s, buf, host := parts(t, d, 256)
	clear(host.Host())
	require.NoError(t, s.kernel("test_store", dim{1}, dim{1}, 0, s.ptr(tensor.New(host, 0, tensor.I32, 3)), 9, 0))
	word := tensor.Host[int32](tensor.New(host, 0, tensor.I32, 1))
	require.Eventually(t, func() bool { return word[0] == 9 }, time.Second, time.Millisecond)
	close2(t, d, s, buf, host)
}

// The environment names the kernel that fails, out of many.
func TestSyncNamesTheKernel(t *testing.T) {
	if os.Getenv("LONGSHIP_CUDA_SYNC") != "1" {
		open(t).Close()
		cmd := exec.Command(os.Args[0], "-test.run", "^TestSyncNamesTheKernel$")
		cmd.Env = append(os.Environ(), "LONGSHIP_CUDA_SYNC=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	d := open(t)
	s, buf, host := parts(t, d, 256)
	for i := range 10 {
		at := s.ptr(tensor.New(buf, 0, tensor.I32, 3))
		if i == 3 {
			at = 8
		}
		require.NoError(t, s.kernel("test_store", dim{1}, dim{1}, 0, at, 0, 0))
		require.NoError(t, s.kernel("test_nothing", dim{1}, dim{1}, 0, 0, 0, 0, 0, 0))
	}
	require.ErrorContains(t, s.Sync(), "stream s: test_store: ")
	close2(t, d, s, buf, host)
}

func TestPTXTooNewForTheDriver(t *testing.T) {
	open(t).Close()
	defer func(m []kernels.Module) { modules = m }(modules)
	modules = append(modules, kernels.Module{Name: "late.ptx", PTX: strings.Replace(testKernels, "7.8", "9.9", 1), Needs: kernels.Needs})
	_, err := Open(0)
	require.ErrorContains(t, err, "late.ptx is PTX 9.9")
	ptxNeeds["9.9"] = ptxNeed{99000, "999"}
	defer delete(ptxNeeds, "9.9")
	_, err = Open(0)
	require.ErrorContains(t, err, "the kernels need 99.0: install driver 999 or newer")
}

func TestNoSuchCard(t *testing.T) {
	open(t).Close()
	_, err := Open(1000)
	require.ErrorContains(t, err, "there is no card 1000: the driver shows ")
}

func ExampleOpen() {
	dev, err := Open(0)
	if err != nil {
		fmt.Println(err) // one line that says what is missing
		return
	}
	defer dev.Close()
}
