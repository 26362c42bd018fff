package dtype_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"longship/internal/dtype"
	"longship/internal/golden"
)

// sameBits fails at the first value whose bits differ; any NaN equals any NaN
// unless exact.
func sameBits(t *testing.T, got, want []float32) {
	t.Helper()
	if len(got) != len(want) || len(got) == 0 {
		t.Fatalf("%d values, want %d", len(got), len(want))
	}
	for i := range got {
		if math.IsNaN(float64(got[i])) && math.IsNaN(float64(want[i])) {
			continue
		}
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("value %d is %x (%g), want %x (%g)", i, math.Float32bits(got[i]), got[i], math.Float32bits(want[i]), want[i])
		}
	}
}

func TestDecodeMatchesTorch(t *testing.T) {
	g := golden.Open(t, "golden", "dtypes.safetensors")
	bits, _ := g.I64("half.bits")
	half := make([]uint16, len(bits))
	for i, b := range bits {
		half[i] = uint16(b)
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	got := make([]float32, max(len(half), len(all)))
	tests := []struct {
		name   string
		n      int
		decode func(dst []float32)
	}{
		{"bfloat16.decode", len(half), func(dst []float32) { dtype.BF16ToF32(dst, half) }},
		{"float16.decode", len(half), func(dst []float32) { dtype.F16ToF32(dst, half) }},
		{"float8_e5m2.decode", 256, func(dst []float32) { dtype.E5M2ToF32(dst, all) }},
		{"float8_e4m3fn.decode", 256, func(dst []float32) { dtype.E4M3ToF32(dst, all) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.decode(got[:tt.n])
			want, _ := g.F32(tt.name)
			sameBits(t, got[:tt.n], want)
		})
	}
}

func TestEncodeMatchesTorch(t *testing.T) {
	g := golden.Open(t, "golden", "dtypes.safetensors")
	x, _ := g.F32("enc.x")
	// PyTorch has both conversions of what float8 E4M3 cannot hold: up to 2.11 to
	// NaN, later to the largest value. The file says which of ours it is.
	encodeE4M3 := dtype.F32ToE4M3
	for i, code := range g.Raw("enc.float8_e4m3fn") {
		if x[i] > 2*dtype.MaxE4M3 && code == 0x7e {
			encodeE4M3 = dtype.F32ToE4M3Sat
		}
	}
	bytes := func(encode func([]byte, []float32)) []byte {
		dst := make([]byte, len(x))
		encode(dst, x)
		return dst
	}
	halves := func(encode func([]uint16, []float32)) []byte {
		dst := make([]uint16, len(x))
		encode(dst, x)
		return dtype.Bytes(dst)
	}
	for name, got := range map[string][]byte{
		"enc.bfloat16":          halves(dtype.F32ToBF16),
		"enc.float16":           halves(dtype.F32ToF16),
		"enc.float8_e5m2":       bytes(dtype.F32ToE5M2),
		"enc.float8_e4m3fn":     bytes(encodeE4M3),
		"enc_sat.float8_e5m2":   bytes(dtype.F32ToE5M2Sat),
		"enc_sat.float8_e4m3fn": bytes(dtype.F32ToE4M3Sat),
	} {
		t.Run(name, func(t *testing.T) {
			want := g.Raw(name)
			if len(got) != len(want) {
				t.Fatalf("%d bytes, want %d", len(got), len(want))
			}
			size := len(got) / len(x)
			for i := range got {
				// PyTorch's vector code writes 0xffff for every bfloat16 NaN, its
				// scalar code 0x7fc0; any quiet NaN will do.
				if math.IsNaN(float64(x[i/size])) && name == "enc.bfloat16" {
					if v := dtype.View[uint16](got)[i/size]; v&0x7fc0 != 0x7fc0 {
						t.Fatalf("NaN becomes %#x", v)
					}
					continue
				}
				if got[i] != want[i] {
					t.Fatalf("byte %d of value %d (%g) is %#x, want %#x", i%size, i/size, x[i/size], got[i], want[i])
				}
			}
		})
	}
}

// Every pattern survives decoding and encoding.
func TestRoundTripOfAllPatterns(t *testing.T) {
	half := make([]uint16, 1<<16)
	for i := range half {
		half[i] = uint16(i)
	}
	wide := make([]float32, len(half))
	back := make([]uint16, len(half))
	check := func(name string, decode func([]float32, []uint16), encode func([]uint16, []float32)) {
		decode(wide, half)
		encode(back, wide)
		for i := range half {
			nan := math.IsNaN(float64(wide[i]))
			var again [1]float32
			decode(again[:], back[i:i+1])
			if !nan && back[i] != half[i] || nan && !math.IsNaN(float64(again[0])) {
				t.Fatalf("%s: %#x comes back as %#x", name, half[i], back[i])
			}
		}
	}
	check("bf16", dtype.BF16ToF32, dtype.F32ToBF16)
	check("f16", dtype.F16ToF32, dtype.F32ToF16)

	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	got := make([]byte, 256)
	check8 := func(name string, decode func([]float32, []byte), encode func([]byte, []float32)) {
		decode(wide[:256], all)
		encode(got, wide[:256])
		for i := range all {
			if !math.IsNaN(float64(wide[i])) && got[i] != all[i] {
				t.Fatalf("%s: %#x comes back as %#x", name, all[i], got[i])
			}
		}
	}
	check8("e5m2", dtype.E5M2ToF32, dtype.F32ToE5M2)
	check8("e4m3", dtype.E4M3ToF32, dtype.F32ToE4M3)
}

// Rounding gives the nearest value of the format, the even one of two.
func TestRoundsToNearestEven(t *testing.T) {
	formats := []struct {
		name    string
		largest float32
		decode  func(dst []float32, src []byte)
		encode  func(dst []byte, src []float32)
	}{
		{"e5m2", dtype.MaxE5M2, dtype.E5M2ToF32, dtype.F32ToE5M2Sat},
		{"e4m3", dtype.MaxE4M3, dtype.E4M3ToF32, dtype.F32ToE4M3Sat},
	}
	for _, f := range formats {
		t.Run(f.name, rapid.MakeCheck(func(t *rapid.T) {
			x := rapid.Float32Range(-f.largest, f.largest).Draw(t, "x")
			if rapid.Bool().Draw(t, "midpoint") { // halfway between two neighbours
				c := byte(rapid.IntRange(0, 0x7a).Draw(t, "code"))
				var two [2]float32
				f.decode(two[:], []byte{c, c + 1})
				x = (two[0] + two[1]) / 2
			}
			var code [1]byte
			f.encode(code[:], []float32{x})
			var v [3]float32
			c := code[0]
			f.decode(v[:], []byte{c, c - 1, c + 1})
			far := math.Abs(float64(v[0]) - float64(x))
			for i, n := range []byte{c, c - 1, c + 1} {
				if i == 0 || n&0x80 != c&0x80 || math.IsNaN(float64(v[i])) || math.IsInf(float64(v[i]), 0) {
					continue
				}
				d := math.Abs(float64(v[i]) - float64(x))
				if d < far || d == far && c&1 == 1 {
					t.Fatalf("%g becomes %g (%#x), %g (%#x) is nearer or even", x, v[0], c, v[i], n)
				}
			}
		}))
	}
}

func TestViewRefusesUnevenBytes(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	dtype.View[float32](make([]byte, 7))
}

func BenchmarkConvert(b *testing.B) {
	const n = 1 << 20
	wide := make([]float32, n)
	for i := range wide {
		wide[i] = float32(i%1000)/500 - 1
	}
	half := make([]uint16, n)
	dtype.F32ToBF16(half, wide)
	code := make([]byte, n)
	dtype.F32ToE5M2(code, wide)
	run := func(name string, bytes int, fn func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(bytes))
			for b.Loop() {
				fn()
			}
		})
	}
	run("bf16-f32", 2*n, func() { dtype.BF16ToF32(wide, half) })
	run("f32-bf16", 4*n, func() { dtype.F32ToBF16(half, wide) })
	run("f16-f32", 2*n, func() { dtype.F16ToF32(wide, half) })
	run("f32-f16", 4*n, func() { dtype.F32ToF16(half, wide) })
	run("e5m2-f32", n, func() { dtype.E5M2ToF32(wide, code) })
	run("f32-e5m2", 4*n, func() { dtype.F32ToE5M2Sat(code, wide) })
	run("e4m3-f32", n, func() { dtype.E4M3ToF32(wide, code) })
	run("f32-e4m3", 4*n, func() { dtype.F32ToE4M3Sat(code, wide) })
}
