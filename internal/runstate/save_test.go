package runstate

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/lorafile"
	"longship/internal/safetensors"
	"longship/stages/port"
)

func TestSaveAndLatest(t *testing.T) {
	f := In(t.TempDir(), "cat")
	c, ignored := newest(t, f)
	require.Nil(t, c)
	require.Empty(t, ignored)

	saved := save(t, f, bf16(0), 250)
	require.Equal(t, filepath.Join(f.Dir, "cat_000000250.safetensors"), saved.Adapters[0])
	require.Equal(t, filepath.Join(f.Dir, "state", "cat_000000250.state"), saved.State)
	require.Positive(t, saved.Bytes)
	save(t, f, bf16(0), 500)

	c, ignored = newest(t, f)
	require.Empty(t, ignored)
	require.Equal(t, 500, c.Step)
	require.False(t, c.Final)
	want := stateAt(500)
	require.Equal(t, want.Adapter, c.Adapter)
	require.Equal(t, want.Settings, c.Settings)
	require.Equal(t, want.Dataset, c.Dataset)
	requireState(t, c)
	file, err := safetensors.Open(c.AdapterPath)
	require.NoError(t, err)
	defer file.Close()
	require.Equal(t, "cat", file.Metadata["ss_output_name"])
}

// Same state, same bytes: nothing of time or place is in the files.
func TestFilesAreReproducible(t *testing.T) {
	var files [2][]byte
	for i := range files {
		f := In(t.TempDir(), "cat")
		saved := save(t, f, bf16(0), 3)
		for _, path := range []string{saved.Adapters[0], saved.State} {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			files[i] = append(files[i], data...)
		}
	}
	require.True(t, bytes.Equal(files[0], files[1]))
}

// A step that an earlier process saved is saved anew, whatever is left of it:
// its settings may have been others, and its state may be damaged.
func TestSavedStepIsSavedAnew(t *testing.T) {
	f := In(t.TempDir(), "cat")
	save(t, f, bf16(0), 2)
	saved := save(t, f, bf16(0), 3)
	data, err := os.ReadFile(saved.State)
	require.NoError(t, err)
	data[len(data)-100] ^= 1
	require.NoError(t, os.WriteFile(saved.State, data, 0o644))
	c, _ := newest(t, f)
	require.Equal(t, 2, c.Step)
	save(t, f, bf16(0), 3)
	c, ignored := newest(t, f)
	require.Empty(t, ignored)
	requireState(t, c)
}

// What a run that went on from an older checkpoint finds of later steps does not
// count among what it keeps.
func TestLaterStepsDoNotCount(t *testing.T) {
	f := In(t.TempDir(), "cat")
	save(t, f, bf16(0), 2)
	save(t, f, bf16(0), 8)
	require.NoError(t, os.Truncate(f.statePath(8), 100))
	for step := 4; step <= 6; step++ {
		saved := save(t, f, bf16(1), step)
		require.FileExists(t, saved.Adapters[0])
		c, _ := newest(t, f)
		require.Equal(t, step, c.Step)
	}
	require.NoFileExists(t, f.adapter(5))
	require.NoFileExists(t, f.statePath(5))
	require.FileExists(t, f.adapter(8))
}

// Two series of one run are saved together, are one checkpoint, and are rotated
// each by its own count.
func TestSeries(t *testing.T) {
	f := In(t.TempDir(), "cat")
	plain := AdapterFile{Layout: lorafile.ComfyUI, DType: "bf16", Keep: 2}
	other := AdapterFile{Series: "wide", Layout: lorafile.Diffusers, DType: "fp32", Keep: 0}
	for step := 1; step <= 5; step++ {
		opt := SaveOptions{Files: []AdapterFile{plain}, Final: step == 5}
		if step%2 == 1 {
			opt.Files = append(opt.Files, other)
		}
		save(t, f, opt, step)
	}
	require.ElementsMatch(t, []string{"cat_000000003.safetensors", "cat_000000004.safetensors", "cat.safetensors",
		"cat-wide_000000001.safetensors", "cat-wide_000000003.safetensors", "cat-wide.safetensors"}, adapters(t, f))
	for file, name := range map[string]string{"cat.safetensors": "cat", "cat-wide.safetensors": "cat-wide"} {
		s, err := safetensors.Open(f.path(file))
		require.NoError(t, err)
		require.Equal(t, name, s.Metadata["ss_output_name"])
		require.NoError(t, s.Close())
	}
	c, ignored := newest(t, f)
	require.Empty(t, ignored)
	require.Equal(t, 5, c.Step)
	require.Equal(t, f.path("cat.safetensors"), c.AdapterPath)

	// A checkpoint without one of its files is none.
	require.NoError(t, os.Remove(f.path("cat-wide.safetensors")))
	c, ignored = newest(t, f)
	require.Equal(t, 4, c.Step)
	require.Len(t, ignored, 1, "%v", ignored)

	// Where the second cannot be written the first does not stay.
	before := adapters(t, f)
	st := stateAt(6)
	st.Memory = &failing{reads: len(st.Params) + 2}
	_, err := f.Save(t.Context(), SaveOptions{Files: []AdapterFile{plain, other}}, st)
	require.ErrorContains(t, err, "the device is lost")
	require.ElementsMatch(t, before, adapters(t, f))

	require.NoError(t, os.WriteFile(f.path("cat-wide_000000009.safetensors.partial"), nil, 0o644))
	save(t, f, SaveOptions{Files: []AdapterFile{plain}}, 6)
	require.NoFileExists(t, f.path("cat-wide_000000009.safetensors.partial"))
}

// adapters lists the adapter files of a run.
func adapters(t *testing.T, f Folder) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(f.Dir)
	require.NoError(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), adapterExt) {
			names = append(names, e.Name())
		}
	}
	return names
}

// A flipped bit anywhere in a pair makes the pair no pair, and the one before
// it is taken.
func TestFlippedBit(t *testing.T) {
	f := In(t.TempDir(), "cat")
	save(t, f, bf16(0), 1)
	saved := save(t, f, bf16(0), 2)
	rapid.Check(t, func(rt *rapid.T) {
		path := rapid.SampledFrom([]string{saved.Adapters[0], saved.State}).Draw(rt, "file")
		data, err := os.ReadFile(path)
		require.NoError(rt, err)
		defer os.WriteFile(path, bytes.Clone(data), 0o644)
		at := rapid.IntRange(0, len(data)-1).Draw(rt, "byte")
		data[at] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		require.NoError(rt, os.WriteFile(path, data, 0o644))

		c, ignored, err := f.Latest(context.Background())
		if errors.Is(err, ErrNewer) {
			return // the bit was in the number of the format
		}
		require.NoError(rt, err)
		require.Equal(rt, 1, c.Step)
		require.NotEmpty(rt, ignored)
		require.NotEmpty(rt, ignored[0].Why)
		requireState(rt, c)
	})
}

func TestHalvesAreIgnored(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, f Folder)
		want  string
	}{
		"no state":         {func(t *testing.T, f Folder) { require.NoError(t, os.Remove(f.statePath(2))) }, "no state beside it"},
		"no adapter":       {func(t *testing.T, f Folder) { require.NoError(t, os.Remove(f.adapter(2))) }, "no such file"},
		"cut state":        {func(t *testing.T, f Folder) { require.NoError(t, os.Truncate(f.statePath(2), 100)) }, "safetensors"},
		"empty state":      {func(t *testing.T, f Folder) { require.NoError(t, os.Truncate(f.statePath(2), 0)) }, "too few"},
		"another's state":  {func(t *testing.T, f Folder) { require.NoError(t, os.Rename(f.statePath(1), f.statePath(2))) }, "it is of step 1"},
		"adapter as state": {func(t *testing.T, f Folder) { require.NoError(t, os.Rename(f.adapter(1), f.statePath(2))) }, "no state of a run"},
	} {
		t.Run(name, func(t *testing.T) {
			f := In(t.TempDir(), "cat")
			save(t, f, bf16(0), 0)
			save(t, f, bf16(0), 1)
			save(t, f, bf16(0), 2)
			save(t, f, bf16(0), 1) // again, since its state was rotated away
			c.spoil(t, f)
			got, ignored := newest(t, f)
			var why []string
			for _, i := range ignored {
				why = append(why, i.Why)
			}
			require.Contains(t, strings.Join(why, "\n"), c.want)
			if got != nil {
				require.Less(t, got.Step, 2)
			}
		})
	}
}

func TestPartialsAreSaidAndSwept(t *testing.T) {
	f := In(t.TempDir(), "cat")
	save(t, f, bf16(0), 1)
	ours := []string{f.path("cat_000000002.safetensors.partial"), f.path("cat.safetensors.partial"), filepath.Join(f.stateDir(), "cat_000000002.state.partial")}
	theirs := f.path("cat_v2_000000002.safetensors.partial")
	for _, p := range append(ours, theirs) {
		require.NoError(t, os.WriteFile(p, []byte("half"), 0o644))
	}
	c, ignored := newest(t, f)
	require.Equal(t, 1, c.Step)
	require.Len(t, ignored, len(ours))
	save(t, f, bf16(0), 2)
	for _, p := range ours {
		require.NoFileExists(t, p)
	}
	require.FileExists(t, theirs)
}

// Job "cat" keeps its hands off the files of job "cat_v2" and off everything else.
func TestRotation(t *testing.T) {
	f := In(t.TempDir(), "cat")
	require.NoError(t, os.MkdirAll(f.Dir, 0o755))
	foreign := []string{"cat_v2_000000001.safetensors", "cat_1.safetensors", "cat_000000001.txt", "cat_0000000001.safetensors", "other.safetensors"}
	for _, name := range foreign {
		require.NoError(t, os.WriteFile(f.path(name), nil, 0o644))
	}
	for step := 1; step <= 5; step++ {
		save(t, f, bf16(3), step)
	}
	for step := 1; step <= 5; step++ {
		require.Equal(t, step > 2, exists(f.adapter(step)), "adapter %d", step)
		require.Equal(t, step > 3, exists(f.statePath(step)), "state %d", step)
	}
	for _, name := range foreign {
		require.FileExists(t, f.path(name))
	}
	_, ignored := newest(t, f)
	require.Empty(t, ignored, "an adapter whose state was rotated away is no half")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestFinal(t *testing.T) {
	f := In(t.TempDir(), "cat")
	final := bf16(2)
	final.Final = true
	save(t, f, bf16(2), 5)
	saved := save(t, f, final, 10)
	require.Equal(t, f.path("cat.safetensors"), saved.Adapters[0])
	c, ignored := newest(t, f)
	require.Empty(t, ignored)
	require.True(t, c.Final)
	requireState(t, c)

	// More steps: the old final file gets its number, and its state still finds it.
	old, err := os.ReadFile(saved.Adapters[0])
	require.NoError(t, err)
	save(t, f, final, 20)
	moved, err := os.ReadFile(f.path("cat_000000010.safetensors"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(old, moved))
	require.NoError(t, os.Remove(f.statePath(20)))
	c, _ = newest(t, f)
	require.Equal(t, 10, c.Step)
	requireState(t, c)
}

func TestUnknownFinalIsKept(t *testing.T) {
	f := In(t.TempDir(), "cat")
	require.NoError(t, os.MkdirAll(f.Dir, 0o755))
	require.NoError(t, os.WriteFile(f.path("cat.safetensors"), []byte("of a run whose state is gone"), 0o644))
	final := bf16(2)
	final.Final = true
	save(t, f, final, 10)
	data, err := os.ReadFile(f.path("cat.previous-1.safetensors"))
	require.NoError(t, err)
	require.Equal(t, "of a run whose state is gone", string(data))
}

// A process that dies between the last adapter and its state leaves half a
// pair: it is said, and gone when the pair is saved again.
func TestHalfFinal(t *testing.T) {
	f := In(t.TempDir(), "cat")
	final := bf16(2)
	final.Final = true
	save(t, f, bf16(2), 5)
	save(t, f, final, 10)
	require.NoError(t, os.Remove(f.statePath(10)))
	c, ignored := newest(t, f)
	require.Equal(t, 5, c.Step)
	require.Equal(t, []Ignored{{f.path("cat.safetensors"), "it has no state beside it"}}, ignored)
	// Processes died there twice before, and once a run of another adapter did.
	half, err := os.ReadFile(f.path("cat.safetensors"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.path("cat.previous-1.safetensors"), half, 0o644))
	require.NoError(t, os.WriteFile(f.path("cat.previous-3.safetensors"), []byte("another"), 0o644))
	save(t, f, final, 10)
	_, ignored = newest(t, f)
	require.Empty(t, ignored)
	require.NoError(t, os.Remove(f.path("cat.previous-3.safetensors")), "another's bytes stay")
	strays, err := filepath.Glob(f.path("*.previous-*"))
	require.NoError(t, err)
	require.Empty(t, strays)
}

// The last step may have been saved as an ordinary one before.
func TestFinalAfterOrdinary(t *testing.T) {
	f := In(t.TempDir(), "cat")
	save(t, f, bf16(2), 10)
	final := bf16(2)
	final.Final = true
	save(t, f, final, 10)
	c, ignored := newest(t, f)
	require.Empty(t, ignored)
	require.True(t, c.Final)
	require.Equal(t, f.path("cat.safetensors"), c.AdapterPath)
}

func TestFailedSaveLeavesNothing(t *testing.T) {
	f := In(t.TempDir(), "cat")
	save(t, f, bf16(0), 1)
	before := tree(t, f.Dir)
	for name, spoil := range map[string]func() error{
		"adapter": func() error {
			st := stateAt(2)
			copy(st.Params[3].EMA.Buf.Host(), []byte{0, 0, 0xc0, 0x7f}) // NaN
			_, err := f.Save(t.Context(), bf16(0), st)
			return err
		},
		"state": func() error {
			st := stateAt(2)
			st.Memory = &failing{reads: len(st.Params) + 3} // the adapter file needs one a parameter
			_, err := f.Save(t.Context(), bf16(0), st)
			return err
		},
		"cancelled": func() error {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := f.Save(ctx, bf16(0), stateAt(2))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, spoil(), "save step 2 of run cat")
			require.Equal(t, before, tree(t, f.Dir))
		})
	}
}

// failing is memory that fails after some reads.
type failing struct{ reads int }

func (m *failing) Read(_ context.Context, t tensor.Tensor, dst []byte) error {
	if m.reads--; m.reads < 0 {
		return errors.New("the device is lost")
	}
	copy(dst, t.Region().Bytes())
	return nil
}

func (m *failing) Write(context.Context, tensor.Tensor, []byte) error { return nil }

func tree(t testing.TB, dir string) (paths []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		paths = append(paths, p)
		return err
	}))
	return paths
}

func TestRestoreRefuses(t *testing.T) {
	f := In(t.TempDir(), "cat")
	save(t, f, SaveOptions{Files: []AdapterFile{{Layout: lorafile.Diffusers, DType: "fp16"}}}, 4)
	c, _ := newest(t, f)
	st := stateAt(0)
	st.Params[0].Value = f32([]int{3, 4}, 0)
	require.ErrorContains(t, c.Restore(t.Context(), st), "it is F32[2 4], the run has F32[3 4]")
	st = stateAt(0)
	st.Params[0].Optimizer["z"] = u8(1, 0)
	require.ErrorContains(t, c.Restore(t.Context(), st), `"double_blocks.0.img_attn.qkv.lora_A/z" is missing`)
}

// A run may keep its values in another type than the run it goes on from.
func TestRestoreIntoAnotherType(t *testing.T) {
	half := func(of tensor.Tensor) tensor.Tensor {
		raw := make(host, 2*of.Len())
		dtype.F32ToBF16(dtype.View[uint16](raw), of.Float32s())
		return tensor.New(raw, 0, tensor.BF16, of.Shape...)
	}
	narrow := func(step int) *port.State {
		st := stateAt(step)
		for i := range st.Params {
			st.Params[i].Value = half(st.Params[i].Value)
		}
		return st
	}
	f := In(t.TempDir(), "cat")
	save(t, f, bf16(0), 4)
	c, _ := newest(t, f)
	st := narrow(0)
	require.NoError(t, c.Restore(t.Context(), st))
	require.Equal(t, narrow(4), st, "float32 into bfloat16")

	for i := range st.Params {
		st.Params[i].EMA = tensor.Tensor{}
	}
	st.Step = 5
	_, err := f.Save(t.Context(), bf16(0), st)
	require.NoError(t, err)
	c, _ = newest(t, f)
	wide := stateAt(0)
	require.NoError(t, c.Restore(t.Context(), wide))
	require.NotEqual(t, stateAt(4).Params[0].Value, wide.Params[0].Value)
	require.Equal(t, st.Params[0].Value, half(wide.Params[0].Value), "bfloat16 into float32")
	require.Equal(t, wide.Params[0].Value, wide.Params[0].EMA, "an average that is new")

	far := narrow(0)
	far.Memory = beside{}
	require.NoError(t, c.Restore(t.Context(), far))
	require.Equal(t, st.Params[0].Value, far.Params[0].Value)
	require.Equal(t, wide.Params[0].EMA, far.Params[0].EMA)
}

// EMA may be switched on and off between runs.
func TestRestoreEMA(t *testing.T) {
	without := stateAt(4)
	for i := range without.Params {
		without.Params[i].EMA = tensor.Tensor{}
	}
	f := In(t.TempDir(), "cat")
	_, err := f.Save(t.Context(), bf16(0), without)
	require.NoError(t, err)
	c, _ := newest(t, f)
	on := stateAt(0)
	require.NoError(t, c.Restore(t.Context(), on))
	require.Equal(t, without.Params[1].Value, on.Params[1].EMA, "it starts from the values")

	save(t, f, bf16(0), 5)
	c, _ = newest(t, f)
	off := stateAt(0)
	for i := range off.Params {
		off.Params[i].EMA = tensor.Tensor{}
	}
	require.NoError(t, c.Restore(t.Context(), off))
	require.Equal(t, stateAt(5).Params[1].Value, off.Params[1].Value)
}
