package weights_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/golden"
	"longship/internal/safetensors"
	"longship/internal/weights"
)

// All files of a model, in whichever layout, hold the same weights.
func TestLayoutsAgree(t *testing.T) {
	for _, model := range []string{"tiny-dev", "tiny-klein"} {
		want := open(t, golden.Path(model))
		files, err := filepath.Glob(golden.Path(model, "*.safetensors"))
		require.NoError(t, err)
		compared := 0
		for _, file := range files {
			set, err := safetensors.Load(file)
			require.NoError(t, err)
			_, ok := weights.DetectLayout(set)
			require.NoError(t, set.Close())
			if !ok {
				continue // the autoencoder
			}
			compared++
			t.Run(model+"/"+filepath.Base(file), func(t *testing.T) {
				got := open(t, file)
				require.Equal(t, want.Config, got.Config)
				require.Equal(t, want.Names(), got.Names())
				for _, name := range want.Names() {
					a, b := want.Weight(name), got.Weight(name)
					x, err := a.Float32()
					require.NoError(t, err)
					y, err := b.Float32()
					require.NoError(t, err)
					if b.DType() == safetensors.BF16 && a.DType() != safetensors.BF16 { // the file was rounded
						half := make([]uint16, len(x))
						dtype.F32ToBF16(half, x)
						dtype.BF16ToF32(x, half)
					}
					require.Equal(t, x, y, name)
				}
			})
		}
		require.NotZero(t, compared, model)
	}
}

func open(t *testing.T, path string) *weights.Transformer {
	t.Helper()
	w, err := weights.OpenTransformer(path)
	require.NoError(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

// A range of rows that crosses pieces reads what the whole weight has there.
func TestRowRanges(t *testing.T) {
	w := open(t, golden.Path("tiny-dev")).Weight("double_blocks.0.img_attn.qkv.weight")
	all, err := w.Float32()
	require.NoError(t, err)
	cols, size := w.Cols(), w.DType().Bits()/8
	for lo := 0; lo < w.Rows(); lo += 5 {
		n := min(w.Rows()/2, w.Rows()-lo)
		got := make([]float32, n*cols)
		require.NoError(t, w.Floats(got, lo))
		require.Equal(t, all[lo*cols:(lo+n)*cols], got)
		require.NoError(t, w.ReadRows(make([]byte, n*cols*size), lo))
	}
}

func TestTransformerFaults(t *testing.T) {
	full := open(t, golden.Path("tiny-klein"))
	names := full.Set.Names()
	for name, c := range map[string]struct {
		change func(outs map[string]safetensors.Out)
		want   []string
	}{
		"missing": {func(o map[string]safetensors.Out) { delete(o, names[0]); delete(o, names[1]) }, names[:2]},
		"misshapen": {func(o map[string]safetensors.Out) {
			o[names[2]] = safetensors.OutF32(names[2], make([]float32, 6), 2, 3)
		}, []string{names[2], "[2 3]"}},
		"no float": {func(o map[string]safetensors.Out) {
			x := o[names[3]]
			n := 1
			for _, d := range x.Shape {
				n *= d
			}
			o[names[3]] = safetensors.OutBytes(names[3], safetensors.I8, make([]byte, n), x.Shape...)
		}, []string{names[3], "I8"}},
		"unknown": {func(o map[string]safetensors.Out) {
			o["extra.weight"] = safetensors.OutF32("extra.weight", nil, 0)
		}, []string{"extra.weight"}},
	} {
		t.Run(name, func(t *testing.T) {
			outs := map[string]safetensors.Out{}
			for _, n := range names {
				x, _ := full.Set.Tensor(n)
				data, err := x.Read()
				require.NoError(t, err)
				outs[n] = safetensors.OutBytes(n, x.DType, data, x.Shape...)
			}
			c.change(outs)
			dir := t.TempDir()
			file := filepath.Join(dir, "diffusion_pytorch_model.safetensors")
			f, err := os.Create(file)
			require.NoError(t, err)
			_, err = safetensors.Write(f, nil, slices.Collect(maps.Values(outs)))
			require.NoError(t, err)
			require.NoError(t, f.Close())
			require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), full.Config.JSON(), 0o644))

			_, err = weights.OpenTransformer(dir)
			require.Error(t, err)
			for _, w := range append(slices.Clone(c.want), dir) {
				require.ErrorContains(t, err, w)
			}
		})
	}
}

func TestFindTransformer(t *testing.T) {
	single, err := filepath.Glob(golden.Path("tiny-hd128", "transformer", "*.safetensors"))
	require.NoError(t, err)
	require.Len(t, single, 1)
	data, err := os.ReadFile(single[0])
	require.NoError(t, err)

	dir := t.TempDir()
	_, err = weights.OpenTransformer(dir)
	require.ErrorContains(t, err, dir)

	// A folder with one single file and no config: shapes tell it.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "some-flux.safetensors"), data, 0o644))
	w := open(t, dir)
	want := open(t, golden.Path("tiny-hd128")).Config
	want.Theta, want.Eps = flux2.Default().Theta, flux2.Default().Eps // which no shape tells
	require.Equal(t, want, w.Config)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "other.safetensors"), data, 0o644))
	_, err = weights.OpenTransformer(dir)
	require.ErrorContains(t, err, "several")

	vae := golden.Path("tiny-dev", "ae.safetensors")
	_, err = weights.OpenTransformer(vae)
	require.ErrorContains(t, err, vae)
	none := filepath.Join(dir, "none")
	_, err = weights.OpenTransformer(none)
	require.ErrorContains(t, err, none)
}

// ComfyUI's float8 files keep one scale beside a weight.
func TestScaledFloat8(t *testing.T) {
	file := filepath.Join(t.TempDir(), "w.safetensors")
	f, err := os.Create(file)
	require.NoError(t, err)
	_, err = safetensors.Write(f, nil, []safetensors.Out{
		safetensors.OutBytes("a.weight", safetensors.E4M3, []byte{0x38, 0xb8}, 2), // 1, -1
		safetensors.OutF32("a.weight_scale", []float32{3}),
		safetensors.OutF32("a.input_scale", []float32{9}),
		safetensors.OutBytes("scaled_fp8", safetensors.E4M3, nil, 0),
	})
	require.NoError(t, err)
	require.NoError(t, f.Close())
	set, err := safetensors.Load(file)
	require.NoError(t, err)
	defer set.Close()
	b, err := weights.Bind(set, []weights.Target{{Name: "a", Shape: []int{2, 1}, Parts: []weights.Part{{Tensor: "a.weight"}}}}, nil)
	require.NoError(t, err)
	got, err := b.Weight("a").Float32()
	require.NoError(t, err)
	require.Equal(t, []float32{3, -3}, got)
	require.True(t, b.Weight("a").Scaled())
}

func TestManyFaultsAreCounted(t *testing.T) {
	set, err := safetensors.Load(golden.Path("safetensors_cases", "ok_empty.safetensors"))
	require.NoError(t, err)
	defer set.Close()
	var targets []weights.Target
	for _, n := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		targets = append(targets, weights.Target{Name: n, Shape: []int{1}})
	}
	_, err = weights.Bind(set, targets, nil)
	require.ErrorContains(t, err, "more")
	require.Less(t, strings.Count(err.Error(), "\n"), 10)
}
