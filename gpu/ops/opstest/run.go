package opstest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/tensor"
	"longship/internal/dtype"
)

// RunAll runs every case that has a reference on dev, with activations of type act.
func RunAll(t *testing.T, dev gpu.Device, act tensor.DType) {
	for _, c := range Cases() {
		if c.Want == nil && c.Grad == nil {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			call := prepare(t, dev, c, act)
			defer call.free()
			require.NoError(t, call.run())
			call.compare(t)
		})
	}
}

// call is a case set up on a device.
type call struct {
	c       Case
	stream  gpu.Stream
	host    gpu.Buffer // the arguments' image on the host
	dev     gpu.Buffer
	tensors Tensors // on the device
	image   Tensors // the same places in host
	in      Values  // as the op sees them
	before  []byte  // the image before the call
	frees   []func() error
}

// prepare lays the arguments out in one buffer filled with NaN and copies it to the device.
func prepare(t testing.TB, dev gpu.Device, c Case, act tensor.DType) *call {
	k := &call{c: c, tensors: Tensors{}, image: Tensors{}, in: Values{}}
	var err error
	k.stream, err = dev.NewStream("test")
	require.NoError(t, err)
	size := int64(tensor.Align)
	for _, a := range slices.Concat(c.In, c.Out) {
		size += tensor.Align + int64(a.len()/max(a.cols(), 1)*(a.cols()+a.Gap)+a.Gap)*8
	}
	k.host, err = dev.AllocHost(size)
	require.NoError(t, err)
	k.dev, err = dev.Alloc(size)
	require.NoError(t, err)
	k.frees = []func() error{k.stream.Close, k.host.Free, k.dev.Free}

	for i := range k.host.Host() {
		k.host.Host()[i] = 0xff // NaN in every float type, -1 in integers
	}
	var off int64
	for _, a := range slices.Concat(c.In, c.Out) {
		if a.Over != "" {
			k.image[a.Name], k.tensors[a.Name] = k.image[a.Over], k.tensors[a.Over]
			continue
		}
		dt := a.DType
		if dt == 0 {
			dt = act
		}
		im := tensor.New(k.host, off, dt, a.Shape...)
		im.Stride += a.Gap
		k.image[a.Name] = im
		im.Buf = k.dev
		k.tensors[a.Name] = im
		off += (int64(im.Rows()*im.Stride*dt.Size()) + tensor.Align) / tensor.Align * tensor.Align
		if v := c.content(a, k.in); v != nil {
			write(k.image[a.Name], v)
			k.in[a.Name] = read(k.image[a.Name])
		}
	}
	k.before = slices.Clone(k.host.Host())
	return k
}

// upload puts the arguments on the device as they were before the call.
func (k *call) upload() {
	copy(k.host.Host(), k.before)
	k.stream.Copy(gpu.Region{Buf: k.dev, Len: k.dev.Size()}, gpu.Region{Buf: k.host, Len: k.host.Size()})
}

// run makes the call from fresh arguments and fetches the result.
func (k *call) run() error {
	k.upload()
	if err := k.stream.Sync(); err != nil {
		return err
	}
	k.stream.Launch(k.c.Op(k.tensors))
	k.stream.Copy(gpu.Region{Buf: k.host, Len: k.host.Size()}, gpu.Region{Buf: k.dev, Len: k.dev.Size()})
	return k.stream.Sync()
}

func (k *call) free() {
	for _, f := range k.frees {
		f()
	}
}

// compare checks the outputs against the reference, and that nothing else was written.
func (k *call) compare(t *testing.T) {
	var want Values
	if k.c.Grad != nil {
		want = k.c.Grad.differences(k.in)
	} else {
		want = k.c.Want(k.in)
	}
	for _, a := range k.c.Out {
		if a.Scratch {
			continue
		}
		w, ok := want[a.Name]
		require.True(t, ok, "the case has no reference for %s", a.Name)
		got := read(k.image[a.Name])
		require.Len(t, w, len(got), a.Name)
		if k.c.Grad != nil && a.Fill != nil { // added to
			for i, v := range k.in[a.Name] {
				w[i] += v
			}
		}
		near(t, a.Name, got, w, k.tolerance(k.image[a.Name].DType))
	}
	k.untouched(t)
}

func (k *call) tolerance(dt tensor.DType) float64 {
	switch {
	case dt == tensor.BF16 && k.c.TolBF16 != 0:
		return k.c.TolBF16
	case dt == tensor.BF16:
		return 1.0 / 256 // one rounding of the result
	case dt == tensor.F16:
		return 1.0 / 2048
	case k.c.Tol != 0:
		return k.c.Tol
	}
	return 1e-5
}

// near demands errors of at most tol times the largest magnitude wanted.
func near(t *testing.T, name string, got, want []float64, tol float64) {
	t.Helper()
	var largest float64
	for _, v := range want {
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			largest = max(largest, math.Abs(v))
		}
	}
	for i, w := range want {
		g := got[i]
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		if !(math.Abs(g-w) <= tol*largest) {
			t.Fatalf("%s[%d] is %g, want %g (largest magnitude %g, tolerance %g of it)", name, i, g, w, largest, tol)
		}
	}
}

// untouched demands that every byte outside the outputs is as it was.
func (k *call) untouched(t *testing.T) {
	written := make([]bool, len(k.before))
	for _, a := range k.c.Out {
		im := k.image[a.Name]
		for i := range im.Rows() {
			from := im.Off + int64(i*im.Stride*im.DType.Size())
			for j := range int64(im.Cols() * im.DType.Size()) {
				written[from+j] = true
			}
		}
	}
	for i, b := range k.host.Host() {
		if b != k.before[i] && !written[i] {
			t.Fatalf("byte %d, outside every output, was written", i)
		}
	}
}

// write encodes v into a tensor in host memory.
func write(dst tensor.Tensor, v []float64) {
	cols := dst.Cols()
	for i := range dst.Rows() {
		row := dst.RowRange(i, i+1)
		encode(row, v[i*cols:(i+1)*cols])
	}
}

func encode(row tensor.Tensor, v []float64) {
	single := make([]float32, len(v))
	for i, f := range v {
		single[i] = float32(f)
	}
	switch row.DType {
	case tensor.F32:
		copy(tensor.Host[float32](row), single)
	case tensor.BF16:
		dtype.F32ToBF16(tensor.Host[uint16](row), single)
	case tensor.F16:
		dtype.F32ToF16(tensor.Host[uint16](row), single)
	case tensor.E5M2:
		dtype.F32ToE5M2Sat(tensor.Host[byte](row), single)
	case tensor.E4M3:
		dtype.F32ToE4M3Sat(tensor.Host[byte](row), single)
	case tensor.F64:
		copy(tensor.Host[float64](row), v)
	case tensor.I8, tensor.U8:
		for i, f := range v {
			tensor.Host[byte](row)[i] = byte(int(f))
		}
	case tensor.I32:
		for i, f := range v {
			tensor.Host[int32](row)[i] = int32(f)
		}
	default:
		panic(fmt.Sprintf("opstest: %s arguments are not supported", row.DType))
	}
}

// read decodes a tensor in host memory.
func read(src tensor.Tensor) []float64 {
	var v []float64
	for i := range src.Rows() {
		v = append(v, decode(src.RowRange(i, i+1))...)
	}
	return v
}

func decode(row tensor.Tensor) []float64 {
	single := make([]float32, row.Len())
	switch row.DType {
	case tensor.F32:
		copy(single, tensor.Host[float32](row))
	case tensor.BF16:
		dtype.BF16ToF32(single, tensor.Host[uint16](row))
	case tensor.F16:
		dtype.F16ToF32(single, tensor.Host[uint16](row))
	case tensor.E5M2:
		dtype.E5M2ToF32(single, tensor.Host[byte](row))
	case tensor.E4M3:
		dtype.E4M3ToF32(single, tensor.Host[byte](row))
	case tensor.F64:
		return slices.Clone(tensor.Host[float64](row))
	case tensor.I8:
		for i, q := range tensor.Host[int8](row) {
			single[i] = float32(q)
		}
	case tensor.U8:
		for i, q := range tensor.Host[byte](row) {
			single[i] = float32(q)
		}
	case tensor.I32:
		for i, q := range tensor.Host[int32](row) {
			single[i] = float32(q)
		}
	}
	v := make([]float64, len(single))
	for i, f := range single {
		v[i] = float64(f)
	}
	return v
}
