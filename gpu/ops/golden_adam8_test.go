package ops_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/ops"
	"longship/gpu/tensor"
	"longship/internal/golden"
)

// sameCodes demands equal codes, but where the value x lies within 1e-6 of the
// middle between two codes either of them.
func sameCodes(t *testing.T, name string, got []byte, want []int64, c *ops.Code, x func(i int) float64) {
	t.Helper()
	require.Len(t, got, len(want), name)
	for i, w := range want {
		g := int64(got[i])
		if g == w {
			continue
		}
		middle := (float64(c.Value[min(g, w)]) + float64(c.Value[max(g, w)])) / 2
		if d := g - w; (d != 1 && d != -1) || math.Abs(x(i)-middle) > 1e-6 {
			t.Fatalf("%s[%d] is code %d, want %d (value %.9g, middle %.9g)", name, i, g, w, x(i), middle)
		}
	}
}

func TestGoldenAdam8Codes(t *testing.T) {
	f := golden.Open(t, "golden", "adam8bit.safetensors")
	for name, c := range map[string]*ops.Code{"code_signed": ops.SignedCode(), "code_unsigned": ops.UnsignedCode()} {
		want, _ := f.F32(name)
		require.Equal(t, want, c.Value[:], name)
	}
	require.Equal(t, float64(ops.Adam8Block), metaFloat(t, f, "block"))

	x, _ := f.F32("quant.x")
	top, _ := f.F32("quant.absmax")
	deq, _ := f.F32("quant.deq")
	want, _ := f.I64("quant.codes")
	code := ops.SignedCode()
	got := make([]byte, len(x))
	for i, v := range x {
		got[i] = code.Nearest(v / top[i/ops.Adam8Block])
		require.Equal(t, deq[i], code.Value[want[i]]*top[i/ops.Adam8Block])
	}
	sameCodes(t, "quant.codes", got, want, code, func(i int) float64 { return float64(x[i] / top[i/ops.Adam8Block]) })
}

func TestGoldenAdam8(t *testing.T) {
	f := golden.Open(t, "golden", "adam8bit.safetensors")
	grads, s := f.F32("grads")
	n, blocks := s[1], ops.Adam8Blocks(s[1])
	adam := ops.AdamParams{LR: metaFloat(t, f, "lr"), Beta1: metaFloat(t, f, "b1"), Beta2: metaFloat(t, f, "b2"), Eps: metaFloat(t, f, "eps"), WeightDecay: metaFloat(t, f, "wd")}
	for _, variant := range []string{"cuda", "cpu"} {
		t.Run(variant, func(t *testing.T) {
			b := newBench(t)
			k := ops.AdamW8{P: b.load(f, "p0"), MCode: b.alloc(tensor.U8, n), VCode: b.alloc(tensor.U8, n),
				MMax: b.empty(blocks), VMax: b.empty(blocks), Adam: adam, DecayAfter: variant == "cuda", FixSign: variant == "cuda"}
			k.Adam.Step = b.counter(0)
			b.run(ops.Zero{Y: k.MCode}, ops.Zero{Y: k.VCode}, ops.Zero{Y: k.MMax}, ops.Zero{Y: k.VMax})
			m, v := make([]float64, n), make([]float64, n)
			for i := range s[0] {
				g := grads[i*n : (i+1)*n]
				k.G = b.of(g, n)
				moments(m, v, g, k, adam)
				b.run(ops.CountStep{Step: k.Adam.Step}, k)
				suffix := strconv.Itoa(i)
				if !f.Has(variant + ".p" + suffix) {
					continue
				}
				b.same(f, variant+".p"+suffix, k.P, 1e-6)
				for _, state := range []struct {
					code, top string
					codes     tensor.Tensor
					maxima    tensor.Tensor
					table     *ops.Code
					value     []float64
				}{{"c1_", "a1_", k.MCode, k.MMax, ops.SignedCode(), m}, {"c2_", "a2_", k.VCode, k.VMax, ops.UnsignedCode(), v}} {
					b.same(f, strings.Join([]string{variant, state.top + suffix}, "."), state.maxima, 1e-6)
					want, _ := f.I64(variant + "." + state.code + suffix)
					top := state.maxima.Float32s()
					sameCodes(t, variant+"."+state.code+suffix, tensor.Host[byte](state.codes), want, state.table,
						func(i int) float64 { return state.value[i] / float64(top[i/ops.Adam8Block]) })
				}
			}
		})
	}
}

// moments computes the states of the step to come from the codes before it.
func moments(m, v []float64, g []float32, k ops.AdamW8, a ops.AdamParams) {
	mcode, vcode := tensor.Host[byte](k.MCode), tensor.Host[byte](k.VCode)
	for i, x := range g {
		gi, b := float64(x), i/ops.Adam8Block
		m[i] = a.Beta1*float64(ops.SignedCode().Value[mcode[i]]*k.MMax.Float32s()[b]) + (1-a.Beta1)*gi
		v[i] = a.Beta2*float64(ops.UnsignedCode().Value[vcode[i]]*k.VMax.Float32s()[b]) + (1-a.Beta2)*gi*gi
		if math.IsNaN(gi) || math.IsInf(gi, 0) {
			m[i], v[i] = 0, 0
		}
	}
}
