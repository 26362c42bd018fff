package vae

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/golden"
	"longship/internal/safetensors"
)

func TestOpenEveryLayout(t *testing.T) {
	for name, path := range map[string]string{
		"a folder, f32":            golden.Path("tiny-dev", "vae"),
		"a folder, bf16":           golden.Path("tiny-klein", "vae"),
		"BFL's file, config found": golden.Path("tiny-dev", "ae.safetensors"),
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Open(path)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			require.NoError(t, f.Close())
		})
	}
}

func TestShapesOfThePublishedModel(t *testing.T) {
	var keys map[string][]int
	golden.JSON(t, &keys, "keys", "vae.json")
	want := DefaultConfig().tensors()
	for _, name := range want.names {
		require.Equal(t, keys[name], want.dims[name], name)
		delete(keys, name)
	}
	delete(keys, "bn.num_batches_tracked")
	require.Empty(t, keys, "tensors that the table does not have")
}

func TestFaultsAreNamed(t *testing.T) {
	change := func(alter func(name string, values []float32, shape []int) ([]float32, []int)) string {
		dir := t.TempDir()
		text, err := os.ReadFile(golden.Path("tiny-dev", "vae", "config.json"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644))
		set, err := safetensors.Load(golden.Path("tiny-dev", "vae"))
		require.NoError(t, err)
		defer set.Close()
		var out []safetensors.Out
		for _, name := range set.Names() {
			x, _ := set.Tensor(name)
			if !x.DType.IsFloat() {
				continue
			}
			values, err := x.Float32()
			require.NoError(t, err)
			if values, shape := alter(name, values, x.Shape); values != nil {
				out = append(out, safetensors.OutF32(name, values, shape...))
			}
		}
		f, err := os.Create(filepath.Join(dir, "diffusion_pytorch_model.safetensors"))
		require.NoError(t, err)
		_, err = safetensors.Write(f, nil, out)
		require.NoError(t, errors.Join(err, f.Close()))
		return dir
	}
	t.Run("missing and misshapen, all at once", func(t *testing.T) {
		_, err := Open(change(func(name string, v []float32, shape []int) ([]float32, []int) {
			switch name {
			case "encoder.conv_in.bias":
				return nil, nil
			case "decoder.conv_out.bias":
				return v[:1], []int{1}
			}
			return v, shape
		}))
		require.ErrorContains(t, err, "encoder.conv_in.bias")
		require.ErrorContains(t, err, "decoder.conv_out.bias")
	})
	t.Run("a value that is no number", func(t *testing.T) {
		f, err := Open(change(func(name string, v []float32, shape []int) ([]float32, []int) {
			if name == "quant_conv.weight" {
				v[2] = float32(math.NaN())
			}
			return v, shape
		}))
		require.NoError(t, err)
		defer f.Close()
		_, err = f.Encoder(t.Context(), device(t), 0)
		require.ErrorContains(t, err, "quant_conv.weight")
	})
	t.Run("a variance below zero", func(t *testing.T) {
		f, err := Open(change(func(name string, v []float32, shape []int) ([]float32, []int) {
			if name == runningVar {
				v[1] = -1
			}
			return v, shape
		}))
		require.NoError(t, err)
		defer f.Close()
		_, err = f.Encoder(t.Context(), device(t), 0)
		require.ErrorContains(t, err, runningVar)
		require.ErrorContains(t, err, "no variance")
	})
	for name, c := range map[string]struct{ config, want string }{
		"too many resolutions":           {`{"block_out_channels": [` + strings.Repeat("32,", 70) + `32]}`, "71 entries"},
		"groups that do not divide":      {`{"norm_num_groups": 5}`, "5 groups"},
		"another patch":                  {`{"patch_size": [1, 1]}`, "patch_size"},
		"a decoder of another depth":     {`{"decoder_block_out_channels": [32]}`, "same length"},
		"several faults, all at once":    {`{"sample_size": 0, "layers_per_block": -1}`, "layers_per_block"},
		"something that is not a config": {`[]`, "config"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseConfig([]byte(c.config))
			require.ErrorContains(t, err, c.want)
		})
	}
}
