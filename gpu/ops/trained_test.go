package ops_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu"
	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/rng"
)

// spacing is the distance of neighbours in bfloat16 from 1 to 2.
const spacing = 1.0 / 128

// descent is an optimiser that takes lr off each of n parameters of bfloat16 in
// every step: all gradients are 1.
type descent struct {
	*bench
	p, step tensor.Tensor
	kernel  func(lr float64, round rng.Gen) gpu.Kernel
}

func newDescent(t *testing.T, eight bool, n int, at float32) *descent {
	b := newBench(t)
	d := &descent{bench: b, p: b.alloc(tensor.BF16, n), step: b.alloc(tensor.I32, 1)}
	g := b.alloc(tensor.BF16, n)
	states := map[string]tensor.Tensor{"m": b.alloc(tensor.F32, n), "v": b.alloc(tensor.F32, n),
		"mcode": b.alloc(tensor.U8, n), "vcode": b.alloc(tensor.U8, n),
		"mmax": b.alloc(tensor.F32, ops.Adam8Blocks(n)), "vmax": b.alloc(tensor.F32, ops.Adam8Blocks(n))}
	for _, s := range states {
		clear(s.Buf.Host())
	}
	clear(d.step.Buf.Host())
	for i := range n {
		tensor.Host[uint16](d.p)[i], tensor.Host[uint16](g)[i] = dtype.BF16(at), dtype.BF16(1)
	}
	d.kernel = func(lr float64, round rng.Gen) gpu.Kernel {
		a := ops.AdamParams{LR: lr, Beta1: 0.9, Beta2: 0.999, Eps: 1e-12, Step: d.step}
		if eight {
			return ops.AdamW8{P: d.p, G: g, MCode: states["mcode"], VCode: states["vcode"], MMax: states["mmax"], VMax: states["vmax"], Adam: a, Round: round}
		}
		return ops.AdamW{P: d.p, G: g, M: states["m"], V: states["v"], Adam: a, Round: round}
	}
	return d
}

func (d *descent) take(lr float64, round rng.Gen) {
	d.run(ops.CountStep{Step: d.step}, d.kernel(lr, round))
}

func (d *descent) values() []float32 {
	x := make([]float32, d.p.Len())
	dtype.BF16ToF32(x, tensor.Host[uint16](d.p))
	return x
}

// A parameter between two neighbours of bfloat16 goes to either as often as
// keeps the mean, whatever its neighbours in the tensor and the steps before do.
func TestStochasticRoundingKeepsTheMean(t *testing.T) {
	const n = 1 << 16
	within := func(t *testing.T, what string, share, want float64) {
		t.Helper()
		require.InDelta(t, want, share, 4.5*math.Sqrt(want*(1-want)/n), what)
	}
	for _, eight := range []bool{false, true} {
		for _, at := range []float32{1.5, -1.5} {
			for _, part := range []float64{0.03, 0.5, 0.8} {
				t.Run(fmt.Sprintf("eight=%v at %v less %v", eight, at, part), func(t *testing.T) {
					down := func(round rng.Gen) []bool {
						d := newDescent(t, eight, n, at)
						d.take(part*spacing, round)
						moved := make([]bool, n)
						for i, v := range d.values() {
							moved[i] = v != at
							if moved[i] {
								require.Equal(t, at-spacing, v)
							}
						}
						return moved
					}
					first, second := down(rng.New(1, "test", 1)), down(rng.New(1, "test", 2))
					require.Equal(t, first, down(rng.New(1, "test", 1)))
					var share, pairs, again float64
					for i, moved := range first {
						if moved {
							share += 1.0 / n
							if first[(i+1)%n] {
								pairs += 1.0 / n
							}
							if second[i] {
								again += 1.0 / n
							}
						}
					}
					within(t, "moved", share, part)
					within(t, "moved with the next", pairs, part*part)
					within(t, "moved in both steps", again, part*part)
				})
			}
		}
	}
}

// Updates that rounding to nearest would lose, a hundredth of the distance of
// neighbours each, arrive.
func TestSmallUpdatesArrive(t *testing.T) {
	for _, eight := range []bool{false, true} {
		const n, steps, lr = 1 << 12, 300, spacing / 100
		d := newDescent(t, eight, n, 1.5)
		for i := range steps {
			d.take(lr, rng.New(1, "test", i))
		}
		sum := 0.0
		for _, v := range d.values() {
			sum += float64(v)
		}
		// A parameter's way varies by less than √(steps/100) neighbours.
		require.InDelta(t, 1.5-steps*lr, sum/n, 4.5*math.Sqrt(steps/100)*spacing/math.Sqrt(n), "eight=%v", eight)
	}
}
