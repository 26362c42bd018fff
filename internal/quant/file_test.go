package quant

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/gpu/memory"
	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/golden"
	"longship/internal/safetensors"
	"longship/internal/weights"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, path string) *weights.Transformer {
	t.Helper()
	w, err := weights.OpenTransformer(path)
	require.NoError(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

// make quantises the model at path and opens the result.
func quantise(t testing.TB, model *weights.Transformer, opt Options) (set *memory.WeightSet, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "model"+Extension)
	require.NoError(t, Write(context.Background(), path, model, opt))
	set, err := Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { set.Close() })
	return set, path
}

// params reads all units of a set and returns its weights as float32.
func params(t testing.TB, set *memory.WeightSet) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for _, u := range append([]memory.Unit{set.Outer}, set.Units...) {
		raw := make([]byte, u.Bytes)
		require.NoError(t, set.Read(context.Background(), u, raw))
		for _, e := range u.Entries {
			n := 1
			for _, d := range e.Shape {
				n *= d
			}
			code := raw[e.Off : e.Off+int64(n*e.DType.Size())]
			out := make([]float32, n)
			switch e.DType {
			case tensor.E5M2:
				dtype.E5M2ToF32(out, code)
			case tensor.E4M3:
				dtype.E4M3ToF32(out, code)
			case tensor.I8:
				for i, c := range code {
					out[i] = float32(int8(c))
				}
			case tensor.BF16:
				dtype.BF16ToF32(out, dtype.View[uint16](code))
			case tensor.F32:
				copy(out, dtype.View[float32](code))
			}
			if e.Scale >= 0 {
				scale := dtype.View[float32](raw[e.Scale : e.Scale+4*int64(e.Shape[0])])
				for i := range out {
					out[i] *= scale[i/(n/e.Shape[0])]
				}
			}
			all[e.Name] = out
		}
	}
	return all
}

var models = []string{"tiny-dev", "tiny-klein", "tiny-hd128"}

// Every weight of every model comes back: exactly where nothing was lost, else
// within half a step of its row's codes.
func TestWeightsComeBack(t *testing.T) {
	// The largest error of a value, in parts of itself and of the row's largest.
	bounds := map[string]struct{ own, row float64 }{
		"float32": {}, "bf16": {own: 1.0 / 256}, "int8": {row: 0.5001 / 127},
		"float8": {own: 1.0 / 16, row: 1e-4}, "bf8": {own: 1.0 / 8, row: 1e-8},
	}
	require.Len(t, bounds, len(QTypes))
	for _, name := range models {
		model := open(t, golden.Path(name))
		for qtype, bound := range bounds {
			t.Run(name+"/"+qtype, func(t *testing.T) {
				set, _ := quantise(t, model, Options{QType: qtype, Outer: "bf16", Source: "abc"})
				require.Equal(t, model.Config.Blocks(), set.Blocks())
				require.Equal(t, "abc", set.Source)
				config, err := flux2.ParseConfig(set.Config)
				require.NoError(t, err)
				require.Equal(t, model.Config, config)
				outer := map[string]bool{}
				for _, e := range set.Outer.Entries {
					outer[e.Name] = true
				}
				got := params(t, set)
				require.Len(t, got, len(model.Names()))
				for name, values := range got {
					w := model.Weight(name)
					want, err := w.Float32()
					require.NoError(t, err)
					bound := bound
					switch {
					case len(w.Shape) == 1:
						bound = bounds["float32"]
					case outer[name]:
						bound = bounds["bf16"]
					}
					for r := range w.Rows() {
						row := want[r*w.Cols() : (r+1)*w.Cols()]
						amax := float64(amaxF32(row))
						for i, v := range row {
							off := math.Abs(float64(values[r*w.Cols()+i]) - float64(v))
							if off > bound.own*math.Abs(float64(v))+bound.row*amax {
								t.Fatalf("%s row %d column %d: %g for %g (row's largest %g)", name, r, i, values[r*w.Cols()+i], v, amax)
							}
						}
					}
				}
			})
		}
	}
}

// Norms keep the type that they have in the file.
func TestNormsAreKept(t *testing.T) {
	for _, name := range models {
		model := open(t, golden.Path(name))
		set, _ := quantise(t, model, Options{QType: "bf8", Outer: "bf8"})
		for _, u := range set.Units {
			for _, e := range u.Entries {
				if len(e.Shape) > 1 {
					require.Equal(t, tensor.E5M2, e.DType, e.Name)
					continue
				}
				want := tensor.F32
				if model.Weight(e.Name).DType() == safetensors.BF16 {
					want = tensor.BF16
				}
				require.Equal(t, want, e.DType, e.Name)
			}
		}
	}
}

// The layouts of one model give the same file, bit for bit.
func TestLayoutsGiveTheSameFile(t *testing.T) {
	for _, name := range []string{"tiny-dev", "tiny-klein"} {
		folder := open(t, golden.Path(name))
		for _, qtype := range QTypes {
			opt := Options{QType: qtype, Outer: "bf16"}
			_, path := quantise(t, folder, opt)
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			compared := 0
			files, err := filepath.Glob(golden.Path(name, "*.safetensors"))
			require.NoError(t, err)
			for _, file := range files {
				single, err := weights.OpenTransformer(file)
				if err != nil {
					continue // another model
				}
				if single.Weight(single.Names()[0]).DType() == folder.Weight(folder.Names()[0]).DType() {
					_, path := quantise(t, single, opt)
					got, err := os.ReadFile(path)
					require.NoError(t, err)
					require.True(t, bytes.Equal(want, got), "%s as %s", file, qtype)
					compared++
				}
				require.NoError(t, single.Close())
			}
			require.NotZero(t, compared, name)
		}
	}
}

// A file that was rounded to bfloat16 and prefixed gives the codes of that
// rounding, whatever layout its values are in otherwise.
func TestPrefixedFileGivesTheSameUnits(t *testing.T) {
	prefixed := open(t, golden.Path("tiny-klein", "comfy-prefixed-bf16.safetensors"))
	dir := t.TempDir()
	var outs []safetensors.Out
	for _, name := range prefixed.Names() { // the same under BFL's plain names
		w := prefixed.Weight(name)
		raw := make([]byte, w.Len()*w.DType().Bits()/8)
		require.NoError(t, w.ReadRows(raw, 0))
		outs = append(outs, safetensors.OutBytes(name, w.DType(), raw, w.Shape...))
	}
	f, err := os.Create(filepath.Join(dir, "plain.safetensors"))
	require.NoError(t, err)
	_, err = safetensors.Write(f, nil, outs)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), prefixed.Config.JSON(), 0o644))

	opt := Options{QType: "bf8", Outer: "bf16"}
	a, _ := quantise(t, prefixed, opt)
	b, _ := quantise(t, open(t, filepath.Join(dir, "plain.safetensors")), opt)
	require.Equal(t, a.Units, b.Units)
	require.Equal(t, a.Outer, b.Outer)
}

func TestSameBytesOnAnyNumberOfCores(t *testing.T) {
	model := open(t, golden.Path("tiny-hd128"))
	opt := Options{QType: "bf8", Outer: "bf16"}
	var want []byte
	for _, cores := range []int{1, 4} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
		_, path := quantise(t, model, opt)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		if want == nil {
			want = got
		}
		require.True(t, bytes.Equal(want, got))
	}
}

// A flipped byte anywhere is found, by Open or by Verify; so is a cut file.
func TestDamageIsFound(t *testing.T) {
	_, path := quantise(t, open(t, golden.Path("tiny-klein")), Options{QType: "bf8", Outer: "bf16"})
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	set, err := Open(path)
	require.NoError(t, err)
	defer set.Close()
	require.NoError(t, Verify(context.Background(), set, nil))

	check := func(name string, data []byte) {
		t.Helper()
		at := filepath.Join(t.TempDir(), "x"+Extension)
		require.NoError(t, os.WriteFile(at, data, 0o644))
		set, err := Open(at)
		if err != nil {
			require.ErrorIs(t, err, ErrFormat, name)
			return
		}
		defer set.Close()
		require.ErrorIs(t, Verify(context.Background(), set, nil), memory.ErrDamaged, name)
	}
	for _, u := range append([]memory.Unit{set.Outer}, set.Units...) {
		for _, off := range []int64{u.Off, u.Off + u.Bytes/2, u.Off + u.Bytes - 1} {
			data := bytes.Clone(whole)
			data[off] ^= 0x10
			check(u.Name, data)
		}
	}
	for _, off := range []int{0, 9, 17, 25, 40, len(whole) - 1, len(whole) - 100} {
		data := bytes.Clone(whole)
		data[off] ^= 1
		check("header", data)
	}
	for _, n := range []int{0, 10, pageSize, len(whole) / 2, len(whole) - 1} {
		check("cut", whole[:n])
	}
	check("longer", append(bytes.Clone(whole), 0))
}

// A fault in the source ends the writing, and leaves nothing behind.
func TestWriteFaults(t *testing.T) {
	model := open(t, golden.Path("tiny-klein"))
	dir := t.TempDir()
	path := filepath.Join(dir, "x"+Extension)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, Write(ctx, path, model, Options{QType: "bf8", Outer: "bf16"}), context.Canceled)
	require.ErrorContains(t, Write(context.Background(), path, model, Options{QType: "bf9", Outer: "bf16"}), `"bf9"`)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestSize(t *testing.T) {
	model := open(t, golden.Path("tiny-dev"))
	opt := Options{QType: "int8", Outer: "int8"}
	_, path := quantise(t, model, opt)
	info, err := os.Stat(path)
	require.NoError(t, err)
	size, err := Size(model, opt)
	require.NoError(t, err)
	require.InDelta(t, info.Size(), size, 1<<16)
	require.LessOrEqual(t, info.Size(), size)
}

// FuzzHeader: no file makes Open panic, or give a unit outside of it.
func FuzzHeader(f *testing.F) {
	model := open(f, golden.Path("tiny-klein"))
	set, path := quantise(f, model, Options{QType: "bf8", Outer: "bf16"})
	whole, err := os.ReadFile(path)
	require.NoError(f, err)
	encoded := whole[set.Units[len(set.Units)-1].Off+set.Units[len(set.Units)-1].Bytes:]
	f.Add(encoded, int64(len(whole)-len(encoded)))
	f.Add(encoded, int64(5000))
	h := header{Units: []memory.Unit{{Name: "u", Off: pageSize, Bytes: 256, Entries: []memory.Entry{{Name: "e", DType: tensor.E5M2, Shape: []int{math.MaxInt, 2}, Scale: -7}}}}}
	bad, err := cbor.Marshal(h)
	require.NoError(f, err)
	f.Add(bad, int64(8192))
	f.Fuzz(func(t *testing.T, encoded []byte, offset int64) {
		if offset < prefixSize || offset > 1<<20 {
			return
		}
		file := make([]byte, offset, offset+int64(len(encoded)))
		copy(file, formatPrefix(offset, encoded))
		file = append(file, encoded...)
		h, err := readHeader(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		for _, u := range h.each() {
			if u.Off < pageSize && u.Bytes > 0 || u.Off+u.Bytes > offset {
				t.Fatalf("unit at [%d, +%d) of %d", u.Off, u.Bytes, offset)
			}
			p := memory.Params{}
			p.Bind(*u, nil, 0)
			for _, w := range p {
				if w.Data.Off+w.Data.Bytes() > u.Bytes || w.Scale.Valid() && w.Scale.Off+w.Scale.Bytes() > u.Bytes {
					t.Fatalf("weight outside its unit: %+v in %d", w, u.Bytes)
				}
			}
		}
	})
}
