package ops_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/ops"
	"longship/gpu/ops/opstest"
	"longship/gpu/tensor"
	"longship/internal/golden"
)

func TestGoldenAdam8Codes(t *testing.T) {
	f := golden.Open(t, "golden", "adam8bit.safetensors")
	for name, c := range map[string]*ops.Code{"code_signed": ops.SignedCode(), "code_unsigned": ops.UnsignedCode()} {
		want, _ := f.F32(name)
		require.Equal(t, want, c.Value[:], name)
	}
	require.Equal(t, float64(ops.Adam8Block), f.Number("block"))

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
	opstest.SameCodes(t, "quant.codes", got, want, code, func(i int) float64 { return float64(x[i] / top[i/ops.Adam8Block]) })
}

func TestGoldenAdam8(t *testing.T) {
	f := golden.Open(t, "golden", "adam8bit.safetensors")
	grads, s := f.F32("grads")
	n, blocks := s[1], ops.Adam8Blocks(s[1])
	adam := ops.AdamParams{LR: f.Number("lr"), Beta1: f.Number("b1"), Beta2: f.Number("b2"), Eps: f.Number("eps"), WeightDecay: f.Number("wd")}
	for _, variant := range []string{"cuda", "cpu"} {
		t.Run(variant, func(t *testing.T) {
			b := newBench(t)
			k := ops.AdamW8{P: b.load(f, "p0"), MCode: b.alloc(tensor.U8, n), VCode: b.alloc(tensor.U8, n),
				MMax: b.empty(blocks), VMax: b.empty(blocks), Adam: adam, DecayAfter: variant == "cuda", FixSign: variant == "cuda"}
			k.Adam.Step = b.counter(0)
			b.run(ops.Zero{Y: k.MCode}, ops.Zero{Y: k.VCode}, ops.Zero{Y: k.MMax}, ops.Zero{Y: k.VMax})
			compared := 0
			for i := range s[0] {
				g := grads[i*n : (i+1)*n]
				k.G = b.of(g, n)
				m, v := opstest.Adam8Moments(k, g)
				b.run(ops.CountStep{Step: k.Adam.Step}, k)
				suffix := strconv.Itoa(i)
				if !f.Has(variant + ".p" + suffix) {
					continue
				}
				compared++
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
					opstest.SameCodes(t, variant+"."+state.code+suffix, tensor.Host[byte](state.codes), want, state.table,
						func(i int) float64 { return state.value[i] / float64(top[i/ops.Adam8Block]) })
				}
			}
			require.NotZero(t, compared)
		})
	}
}
