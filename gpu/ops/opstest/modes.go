package opstest

import (
	"fmt"
	"maps"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/tensor"
)

// differences returns the gradients by central differences of the naive forward.
func (g *Grad) differences(in Values) Values {
	dy := in[g.DY]
	loss := func(v Values) float64 {
		var sum float64
		for i, y := range g.Forward(v) {
			sum += y * dy[i]
		}
		return sum
	}
	grads := Values{}
	for name, of := range g.Of {
		moved := maps.Clone(in)
		x := append([]float64(nil), in[of]...)
		moved[of] = x
		grads[name] = make([]float64, len(x))
		for i, at := range x {
			const h = 1e-4
			x[i] = at + h
			up := loss(moved)
			x[i] = at - h
			down := loss(moved)
			x[i] = at
			grads[name][i] = (up - down) / (2 * h)
		}
	}
	return grads
}

// RunBits demands that every case gives the same bytes on any number of cores.
func RunBits(t *testing.T, dev gpu.Device, act tensor.DType) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			k := prepare(t, dev, c, act)
			defer k.free()
			var first []byte
			for _, procs := range []int{1, 2, 7} {
				runtime.GOMAXPROCS(procs)
				require.NoError(t, k.run())
				if first == nil {
					first = append(first, k.host.Host()...)
				}
				require.Equal(t, first, k.host.Host(), "GOMAXPROCS %d", procs)
			}
		})
	}
}

// RunSpeed measures the cases that are there for it.
func RunSpeed(b *testing.B, dev gpu.Device, act tensor.DType) {
	for _, c := range Cases() {
		if c.Want != nil || c.Grad != nil {
			continue
		}
		b.Run(c.Name, func(b *testing.B) {
			k := prepare(b, dev, c, act)
			defer k.free()
			k.upload()
			op := c.Op(k.tensors)
			for b.Loop() {
				k.stream.Launch(op)
				require.NoError(b, k.stream.Sync())
			}
			seconds := b.Elapsed().Seconds() / float64(b.N)
			if cost, ok := op.(gpu.Coster); ok {
				b.ReportMetric(float64(cost.Cost().FLOPs)/seconds/1e9, "GFLOP/s")
			}
			var bytes float64
			for _, t := range k.tensors {
				bytes += float64(t.Bytes())
			}
			b.ReportMetric(bytes/seconds/1e9, "GB/s")
		})
	}
}

// Ops returns the names of the ops that the list has cases for.
func Ops(t testing.TB, dev gpu.Device) map[string]int {
	n := map[string]int{}
	for _, c := range Cases() {
		if c.Want == nil && c.Grad == nil {
			continue
		}
		k := prepare(t, dev, c, tensor.F32)
		n[c.Op(k.tensors).Name()]++
		k.free()
	}
	return n
}

func named(format string, args ...any) string { return fmt.Sprintf(format, args...) }
