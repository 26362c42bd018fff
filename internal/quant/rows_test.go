package quant

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/golden"
	"longship/internal/safetensors"
	"longship/internal/weights"
)

// weight returns a weight in a file of its own.
func weight(t testing.TB, d safetensors.DType, data []byte, rows, cols int) weights.Weight {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "*.safetensors")
	require.NoError(t, err)
	_, err = safetensors.Write(f, nil, []safetensors.Out{safetensors.OutBytes("w", d, data, rows, cols)})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	set, err := safetensors.Load(f.Name())
	require.NoError(t, err)
	t.Cleanup(func() { set.Close() })
	b, err := weights.Bind(set, []weights.Target{{Name: "w", Shape: []int{rows, cols}}}, nil)
	require.NoError(t, err)
	return b.Weight("w")
}

// encodeAll stores a whole weight.
func encodeAll(t testing.TB, w weights.Weight, dt tensor.DType) (codes []byte, scales []float32) {
	t.Helper()
	codes, scales = make([]byte, w.Len()*dt.Size()), make([]float32, w.Rows())
	require.NoError(t, new(Encoder).Rows(codes, scales, w, 0, w.Rows(), dt))
	return codes, scales
}

// The int8 and float8 codes of PyTorch, from the same weights.
func TestMatchesTorch(t *testing.T) {
	g := golden.Open(t, "golden", "dtypes.safetensors")
	data, shape := g.F32("nf4.w")
	rows, cols := shape[0], shape[1]

	codes, scales := encodeAll(t, weight(t, safetensors.F32, dtype.Bytes(data), rows, cols), tensor.I8)
	wantScales, _ := g.F32("int8row.scale")
	require.Equal(t, wantScales, scales)
	require.Equal(t, g.Raw("int8row.q"), codes)

	// One scale for the whole tensor is one row.
	codes, scales = encodeAll(t, weight(t, safetensors.F32, dtype.Bytes(data), 1, rows*cols), tensor.E4M3)
	wantScales, _ = g.F32("fp8.scale")
	require.Equal(t, wantScales, scales)
	require.Equal(t, g.Raw("fp8.q"), codes)
}

// reference is the formula, written down as it stands in the package comment.
func reference(row []float32, dt tensor.DType) (codes []byte, scale float32) {
	var amax float32
	for _, v := range row {
		amax = max(amax, float32(math.Abs(float64(v))))
	}
	top := map[tensor.DType]float32{tensor.E5M2: 57344, tensor.E4M3: 448, tensor.I8: 127}[dt]
	if scale = amax / top; scale == 0 {
		scale = 1
	}
	for _, v := range row {
		q := min(max(v/scale, -top), top)
		var c [1]byte
		switch dt {
		case tensor.E5M2:
			dtype.F32ToE5M2(c[:], []float32{q})
		case tensor.E4M3:
			dtype.F32ToE4M3(c[:], []float32{q})
		case tensor.I8:
			c[0] = byte(int8(math.RoundToEven(float64(q))))
		}
		codes = append(codes, c[0])
	}
	return codes, scale
}

// Rows of any bfloat16 values, and of the same as float32, follow the formula.
func TestRowsFollowTheFormula(t *testing.T) {
	for _, dt := range []tensor.DType{tensor.E5M2, tensor.E4M3, tensor.I8} {
		t.Run(dt.String(), func(t *testing.T) {
			dir := t.TempDir()
			rapid.Check(t, func(rt *rapid.T) {
				// Values around one magnitude, as in a real row, or of any.
				spread := rapid.IntRange(0, 254).Draw(rt, "spread")
				low := rapid.SampledFrom([]int{0, 100, 254}).Draw(rt, "exponent")
				low = min(low+rapid.IntRange(0, 20).Draw(rt, "further"), 254-spread)
				bits := rapid.Custom(func(rt *rapid.T) uint16 {
					e := rapid.IntRange(low, low+spread).Draw(rt, "e")
					return uint16(rapid.IntRange(0, 1).Draw(rt, "sign")<<15 | e<<7 | rapid.IntRange(0, 127).Draw(rt, "m"))
				})
				half := rapid.SliceOfN(bits, 1, 100).Draw(rt, "row")
				wide := make([]float32, len(half))
				dtype.BF16ToF32(wide, half)
				want, wantScale := reference(wide, dt)

				for d, data := range map[safetensors.DType][]byte{safetensors.BF16: dtype.Bytes(half), safetensors.F32: dtype.Bytes(wide)} {
					file := filepath.Join(dir, "row.safetensors")
					f, err := os.Create(file)
					require.NoError(rt, err)
					_, err = safetensors.Write(f, nil, []safetensors.Out{safetensors.OutBytes("w", d, data, 1, len(half))})
					require.NoError(rt, err)
					require.NoError(rt, f.Close())
					set, err := safetensors.Load(file)
					require.NoError(rt, err)
					b, err := weights.Bind(set, []weights.Target{{Name: "w", Shape: []int{1, len(half)}}}, nil)
					require.NoError(rt, err)
					codes, scales := make([]byte, len(half)), make([]float32, 1)
					require.NoError(rt, new(Encoder).Rows(codes, scales, b.Weight("w"), 0, 1, dt))
					require.NoError(rt, set.Close())
					require.Equal(rt, wantScale, scales[0], d)
					require.Equal(rt, want, codes, d)
				}
			})
		})
	}
}

func TestZeroRow(t *testing.T) {
	w := weight(t, safetensors.BF16, dtype.Bytes([]uint16{0, 0x8000, 0, 0x3f80, 0xbf80, 0}), 2, 3)
	codes, scales := encodeAll(t, w, tensor.E5M2)
	require.Equal(t, []float32{1, 1.0 / 57344}, scales)
	require.Equal(t, []byte{0, 0x80, 0, 0x7b, 0xfb, 0}, codes)
}

// Types without scales keep what they can hold.
func TestPlainTypes(t *testing.T) {
	half := []uint16{0x3f80, 0xc049, 0x0001}
	w := weight(t, safetensors.BF16, dtype.Bytes(half), 1, 3)
	codes, _ := encodeAll(t, w, tensor.BF16)
	require.Equal(t, dtype.Bytes(half), codes)
	codes, _ = encodeAll(t, w, tensor.F32)
	back := make([]uint16, 3)
	dtype.F32ToBF16(back, dtype.View[float32](codes))
	require.Equal(t, half, back)

	wide := []float32{1.00390625, -3.14159, 1e-40}
	w = weight(t, safetensors.F32, dtype.Bytes(wide), 3, 1)
	codes, _ = encodeAll(t, w, tensor.F32)
	require.Equal(t, dtype.Bytes(wide), codes)
	codes, _ = encodeAll(t, w, tensor.BF16)
	dtype.F32ToBF16(back, wide)
	require.Equal(t, dtype.Bytes(back), codes)
}

func TestNotFiniteIsNamed(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for name, w := range map[string]weights.Weight{
		"nan f32":  weight(t, safetensors.F32, dtype.Bytes([]float32{1, 2, nan, 4}), 2, 2),
		"inf f32":  weight(t, safetensors.F32, dtype.Bytes([]float32{1, 2, 3, inf}), 2, 2),
		"nan bf16": weight(t, safetensors.BF16, dtype.Bytes([]uint16{0, 0, 0xffc0, 0}), 2, 2),
		"inf bf16": weight(t, safetensors.BF16, dtype.Bytes([]uint16{0, 0, 0, 0x7f80}), 2, 2),
	} {
		for _, dt := range []tensor.DType{tensor.E5M2, tensor.I8, tensor.BF16, tensor.F32} {
			t.Run(name+" as "+dt.String(), func(t *testing.T) {
				err := new(Encoder).Rows(make([]byte, 4*dt.Size()), make([]float32, 2), w, 0, 2, dt)
				require.ErrorContains(t, err, "row 1 ")
				require.ErrorContains(t, err, `"w"`)
				require.ErrorContains(t, err, ".safetensors")
			})
		}
	}
}

func BenchmarkRows(b *testing.B) {
	const rows, cols = 256, 6144
	half := make([]uint16, rows*cols)
	for i := range half {
		half[i] = dtype.BF16(float32(math.Sin(float64(i)) * math.Cos(float64(i*i))))
	}
	w := weight(b, safetensors.BF16, dtype.Bytes(half), rows, cols)
	for _, dt := range []tensor.DType{tensor.E5M2, tensor.E4M3, tensor.I8, tensor.BF16} {
		b.Run(dt.String(), func(b *testing.B) {
			b.SetBytes(int64(2 * len(half)))
			step := pieceElements / cols
			dst, scales := make([]byte, step*cols*dt.Size()), make([]float32, step)
			var e Encoder
			for b.Loop() {
				for lo := 0; lo < rows; lo += step {
					n := min(step, rows-lo)
					if err := e.Rows(dst[:n*cols*dt.Size()], scales[:n], w, lo, lo+n, dt); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
