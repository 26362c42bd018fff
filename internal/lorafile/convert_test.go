package lorafile

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/golden"
	"longship/internal/safetensors"
)

// deltas returns scale·B·A of every module, by canonical name.
func deltas(t testing.TB, path string) map[string]matrix {
	t.Helper()
	a, err := Open(path)
	require.NoError(t, err)
	defer a.Close()
	ts, err := targets([]*Adapter{a}, []float64{1}, true)
	require.NoError(t, err)
	all := map[string]matrix{}
	for _, x := range ts {
		down, up, err := x.pair(true)
		require.NoError(t, err)
		all[x.at.module] = multiply(up, down)
	}
	return all
}

func requireDeltas(t testing.TB, want, got map[string]matrix, eps float64) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for name, w := range want {
		g := got[name]
		require.Equal(t, []int{w.rows, w.cols}, []int{g.rows, g.cols}, name)
		var diff, norm float64
		for i, v := range w.v {
			diff += math.Pow(float64(v-g.v[i]), 2)
			norm += float64(v) * float64(v)
		}
		require.LessOrEqual(t, math.Sqrt(diff), eps*math.Sqrt(norm), name)
	}
}

// goldenLoRAs lists the reference's adapter files.
func goldenLoRAs(t testing.TB) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(golden.Path("lora"), func(p string, d fs.DirEntry, err error) error {
		f, _ := safetensors.Open(p)
		if f == nil {
			return err
		}
		defer f.Close()
		if len(f.Tensors) > 0 && !strings.HasPrefix(f.Tensors[0].Name, "delta.") {
			paths = append(paths, p)
		}
		return err
	}))
	require.NotEmpty(t, paths)
	return paths
}

func outputIn(t testing.TB, layout string) Output {
	path := filepath.Join(t.TempDir(), "out")
	if layout != PEFT {
		path += ".safetensors"
	}
	return Output{Path: path, Layout: layout}
}

// Every path between layouts, and back, keeps what the adapter computes.
func TestConvertKeepsTheProduct(t *testing.T) {
	for _, from := range goldenLoRAs(t) {
		want := deltas(t, from)
		for _, layout := range AllLayouts {
			o := outputIn(t, layout)
			require.NoError(t, Convert(t.Context(), from, o, true), "%s to %s", from, layout)
			requireDeltas(t, want, deltas(t, o.Path), 1e-6)
			for _, second := range AllLayouts {
				back := outputIn(t, second)
				require.NoError(t, Convert(t.Context(), o.Path, back, false), "%s to %s to %s", from, layout, second)
				requireDeltas(t, want, deltas(t, back.Path), 1e-6)
			}
		}
	}
}

// Joining pairs of the parts and splitting them again gives the pairs back.
func TestJoinAndSplitIsWithoutLoss(t *testing.T) {
	from := golden.Path("lora", "diffusers_folded.safetensors")
	fused := outputIn(t, ComfyUI)
	require.NoError(t, Convert(t.Context(), from, fused, false))
	requireSame(t, openFile(t, golden.Path("lora", "bfl_lora_ab.safetensors")), openFile(t, fused.Path))
	split := outputIn(t, Diffusers)
	require.NoError(t, Convert(t.Context(), fused.Path, split, false))
	requireSame(t, openFile(t, from), openFile(t, split.Path))

	shared := golden.Path("lora", "bfl_fused_shared.safetensors")
	split = outputIn(t, Diffusers)
	require.NoError(t, Convert(t.Context(), shared, split, false))
	requireSame(t, openFile(t, golden.Path("lora", "converted", "bfl_fused_shared.safetensors")), openFile(t, split.Path))
	fused = outputIn(t, ComfyUI)
	require.NoError(t, Convert(t.Context(), split.Path, fused, false))
	requireSame(t, openFile(t, shared), openFile(t, fused.Path))
}

// A LoKr equals the reference's difference, and stays a LoKr where it can.
func TestLoKr(t *testing.T) {
	from := golden.Path("lora", "lokr.safetensors")
	want := map[string]matrix{}
	ref := openFile(t, golden.Path("lora", "lokr_delta.safetensors"))
	for _, name := range ref.Names() {
		x, _ := ref.Tensor(name)
		v, err := x.Float32()
		require.NoError(t, err)
		want[strings.TrimPrefix(name, "delta.")] = matrix{x.Shape[0], x.Shape[1], v}
	}
	requireDeltas(t, want, deltas(t, from), 1e-6)
	for _, layout := range []string{ComfyUI, Kohya} {
		o := outputIn(t, layout)
		require.NoError(t, Convert(t.Context(), from, o, false))
		requireDeltas(t, want, deltas(t, o.Path), 1e-6)
		a, err := Open(o.Path)
		require.NoError(t, err)
		require.Equal(t, kindLoKr, a.entries[0].kind)
		require.NoError(t, a.Close())
	}
	for _, layout := range []string{Diffusers, PEFT} {
		require.ErrorContains(t, Convert(t.Context(), from, outputIn(t, layout), false), "--as lora")
	}
}

func TestMergeAddsUp(t *testing.T) {
	one, two := golden.Path("lora", "kohya.safetensors"), golden.Path("lora", "bfl_fused_shared.safetensors")
	want := deltas(t, one)
	for name, d := range want {
		for i := range d.v {
			d.v[i] *= 0.5
		}
		if e, ok := deltas(t, two)[name]; ok {
			for i, v := range e.v {
				d.v[i] -= 2 * v
			}
		}
	}
	for _, layout := range AllLayouts {
		o := outputIn(t, layout)
		require.NoError(t, Merge(t.Context(), []Weighted{{one, 0.5}, {two, -2}}, o, false))
		requireDeltas(t, want, deltas(t, o.Path), 1e-6)
	}
}

func TestConvertRefuses(t *testing.T) {
	v := []float32{1, 2, 3, 4}
	x := func(name string) safetensors.Out { return safetensors.OutF32(name, v, 2, 2) }
	save := func(outs ...safetensors.Out) string {
		path := filepath.Join(t.TempDir(), "a.safetensors")
		f, err := os.Create(path)
		require.NoError(t, err)
		_, err = safetensors.Write(f, nil, outs)
		require.NoError(t, errors.Join(err, f.Close()))
		return path
	}
	raw := func(name string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, b, 0o644))
		return path
	}
	whole, err := os.ReadFile(golden.Path("lora", "kohya.safetensors"))
	require.NoError(t, err)
	for name, c := range map[string]struct{ path, want string }{
		"none":       {save(x("a.weight")), "none of its 1 tensors"},
		"some":       {save(x("diffusion_model.img_in.lora_A.weight"), x("diffusion_model.img_in.lora_B.weight"), x("lora_te_x.lora_up.weight")), "text encoder"},
		"half":       {save(x("diffusion_model.img_in.lora_A.weight")), "img_in: one half"},
		"other base": {save(x("diffusion_model.single_blocks.0.linear1.lora_A.weight"), x("diffusion_model.single_blocks.0.linear1.lora_B.weight")), "another base"},
		"flux.1": {save(x("diffusion_model.single_blocks.0.linear1.lora_A.weight"),
			safetensors.OutF32("diffusion_model.single_blocks.0.linear1.lora_B.weight", make([]float32, 28), 14, 2)), "FLUX.1"},
		"zip pickle": {raw("a.pt", []byte("PK\x03\x04 and so on, as torch.save writes")), "refused"},
		"old pickle": {raw("a.ckpt", []byte("\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")), "refused"},
		"1 GB head":  {raw("a.safetensors", append([]byte{0, 0, 0, 0x40, 0, 0, 0, 0}, "{}"...)), "longer than the"},
		"cut":        {raw("a.safetensors", whole[:len(whole)-5]), "cut"},
	} {
		t.Run(name, func(t *testing.T) {
			o := outputIn(t, ComfyUI)
			err := Convert(t.Context(), c.path, o, false)
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			require.NoFileExists(t, o.Path)
		})
	}
	in := raw("in.safetensors", whole)
	require.ErrorContains(t, Convert(t.Context(), in, Output{Path: in, Layout: Kohya, Force: true}, false), "is an input")
	other := raw("other.safetensors", nil)
	require.ErrorContains(t, Convert(t.Context(), in, Output{Path: other, Layout: Kohya}, false), "--force")
	require.NoError(t, Convert(t.Context(), in, Output{Path: other, Layout: Kohya, Force: true}, false))
}

// FuzzConvert: whatever the file, it is converted or refused, and nothing is
// left half written.
func FuzzConvert(f *testing.F) {
	for _, path := range goldenLoRAs(f) {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	dir := f.TempDir()
	in := filepath.Join(dir, "in.safetensors")
	o := Output{Path: filepath.Join(dir, "out.safetensors"), Layout: Diffusers, Force: true}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(in, data, 0o644); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(o.Path)
		err := Convert(t.Context(), in, o, true)
		if _, there := os.Stat(o.Path); (err == nil) != (there == nil) {
			t.Errorf("convert says %v, the file %v", err, there)
		}
	})
}
