package flux2_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/flux2"
	"longship/internal/golden"
	"longship/internal/safetensors"
)

func TestParseConfigDefaults(t *testing.T) {
	c, err := flux2.ParseConfig([]byte(`{"_class_name": "Flux2Transformer2DModel", "out_channels": null, "unknown": 1}`))
	require.NoError(t, err)
	require.Equal(t, flux2.Default(), c)

	again, err := flux2.ParseConfig(c.JSON())
	require.NoError(t, err)
	require.Equal(t, c, again)

	c, err = flux2.ParseConfig([]byte(`{"in_channels": 16}`))
	require.NoError(t, err)
	require.Equal(t, 16, c.OutChannels, "out_channels follows in_channels")
}

func TestParseConfigRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ config, want string }{
		"no json":         {`{`, "unexpected end"},
		"wrong type":      {`{"num_layers": "8"}`, "num_layers"},
		"another model":   {`{"_class_name": "FluxTransformer2DModel"}`, "not a FLUX.2 transformer"},
		"patches":         {`{"patch_size": 2}`, "patch_size"},
		"axes and head":   {`{"attention_head_dim": 64}`, "adds up to 128"},
		"odd axis":        {`{"axes_dims_rope": [31, 33, 32, 32]}`, "even"},
		"three axes":      {`{"axes_dims_rope": [64, 32, 32]}`, "3 entries"},
		"no blocks":       {`{"num_single_layers": 0}`, "num_single_layers"},
		"negative":        {`{"num_attention_heads": -1}`, "num_attention_heads"},
		"huge":            {`{"joint_attention_dim": 1073741824}`, "joint_attention_dim"},
		"many blocks":     {`{"num_layers": 1000000}`, "num_layers"},
		"odd sinusoid":    {`{"timestep_guidance_channels": 255}`, "even"},
		"broken ratio":    {`{"mlp_ratio": 0.00001}`, "mlp_ratio"},
		"theta":           {`{"rope_theta": 0}`, "rope_theta"},
		"eps":             {`{"eps": 0}`, "eps"},
		"several at once": {`{"eps": 0, "rope_theta": 0}`, "eps"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := flux2.ParseConfig([]byte(tc.config))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// The totals of the released models, by the full-size key tables.
func TestParamsOfReleasedModels(t *testing.T) {
	var totals map[string]struct {
		Tensors int
		Params  int64
	}
	golden.JSON(t, &totals, "keys", "totals.json")
	for name, shape := range map[string]func(*flux2.Config){
		"dev": func(*flux2.Config) {},
		"klein-4b": func(c *flux2.Config) {
			c.DoubleBlocks, c.SingleBlocks, c.Heads, c.TextDim, c.Guidance = 5, 20, 24, 7680, false
		},
		"klein-9b": func(c *flux2.Config) {
			c.DoubleBlocks, c.SingleBlocks, c.Heads, c.TextDim, c.Guidance = 8, 24, 32, 12288, false
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := flux2.Default()
			shape(&c)
			require.Equal(t, totals[name].Params, c.Params())

			// The diffusers layout splits qkv in three and renames; the shapes stay.
			var keys map[string][]int
			golden.JSON(t, &keys, "keys", "transformer-"+name+".json")
			have := map[string]int{}
			for _, shape := range keys {
				have[fmt.Sprint(shape)]++
			}
			want := map[string]int{}
			for name, shape := range c.Tensors() {
				if strings.HasSuffix(name, "_attn.qkv.weight") {
					want[fmt.Sprint([]int{shape[0] / 3, shape[1]})] += 3
					continue
				}
				want[fmt.Sprint(shape)]++
			}
			require.Equal(t, have, want)

			parts := map[string]bool{}
			for _, m := range c.Modules() {
				rows := 0
				for _, p := range m.Parts {
					require.Equal(t, rows, p.Lo)
					rows = p.Hi
					require.Equal(t, []int{p.Hi - p.Lo, m.In}, keys[p.Name+".weight"], p.Name)
					parts[p.Name] = true
				}
				require.Equal(t, m.Out, rows)
				require.Equal(t, []int{m.Out, m.In}, c.Tensors()[m.Name+".weight"])
			}
			for key, shape := range keys {
				if strings.Contains(key, "transformer_blocks.") && len(shape) == 2 {
					require.True(t, parts[strings.TrimSuffix(key, ".weight")], key)
				}
			}
		})
	}
}

// DESIGN.md counts 64 units of equal size in dev.
func TestUnitsOfDev(t *testing.T) {
	c := flux2.Default()
	units := c.Units()
	require.Len(t, units, 2*c.DoubleBlocks+c.SingleBlocks)
	block := 0
	for _, u := range units {
		var linears int64
		for _, tensor := range u.Tensors {
			require.True(t, strings.HasPrefix(tensor.Name, u.Name), "%s in %s", tensor.Name, u.Name)
			if !tensor.Norm() {
				linears += tensor.Params()
			}
		}
		require.EqualValues(t, 13*c.Width()*c.Width(), linears)
		require.True(t, u.Block == block || u.Block == block+1)
		block = u.Block
	}
	require.Equal(t, c.Blocks()-1, block)
}

func TestInfer(t *testing.T) {
	want := smallConfig()
	got, err := flux2.Infer(want.Tensors())
	require.NoError(t, err)
	require.Equal(t, want, got)

	for _, name := range []string{"img_in.weight", "double_blocks.0.img_attn.norm.query_norm.scale"} {
		shapes := want.Tensors()
		delete(shapes, name)
		_, err := flux2.Infer(shapes)
		require.ErrorContains(t, err, "not a FLUX.2 transformer")
	}
	other := want
	other.HeadDim, other.Axes = 16, []int{4, 4, 4, 4}
	_, err = flux2.Infer(other.Tensors())
	require.ErrorContains(t, err, "config.json")
}

// The single files of the reference models hold exactly the canonical tensors.
func TestTensorsOfSingleFiles(t *testing.T) {
	for _, model := range []string{"tiny-dev", "tiny-klein"} {
		t.Run(model, func(t *testing.T) {
			text, err := os.ReadFile(golden.Path(model, "transformer", "config.json"))
			require.NoError(t, err)
			c, err := flux2.ParseConfig(text)
			require.NoError(t, err)
			files, err := filepath.Glob(golden.Path(model, "flux*.safetensors"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			f, err := safetensors.Open(files[0])
			require.NoError(t, err)
			defer f.Close()
			have := map[string][]int{}
			for _, tensor := range f.Tensors {
				have[tensor.Name] = tensor.Shape
			}
			require.Equal(t, c.Tensors(), have)
		})
	}
}

// smallConfig is a model of the quickstart's size.
func smallConfig() flux2.Config {
	c := flux2.Default()
	c.DoubleBlocks, c.SingleBlocks, c.Heads, c.TextDim, c.Guidance = 1, 2, 1, 96, true
	return c
}
