package adapter_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/adapter"
	"longship/internal/flux2"
)

func dev() flux2.Config { return flux2.Default() }

// The numbers of FLUX.2-dev: every Linear inside the blocks of dev.
func TestSelectAllOfDev(t *testing.T) {
	c := dev()
	targets, err := adapter.Select(c.Modules(), nil, nil)
	require.NoError(t, err)
	require.Len(t, targets, 160)
	var params int64
	for _, l := range adapter.Layers(targets, 1, 1) {
		require.True(t, l.Whole())
		params += l.Params()
	}
	require.EqualValues(t, 6_094_848, params)
}

func TestSelect(t *testing.T) {
	c := dev()
	d, n, m := c.Width(), c.DoubleBlocks, c.SingleBlocks
	for name, tc := range map[string]struct {
		targets, exclude []string
		count            int
		has, hasNot      []string
	}{
		"canonical leaf":        {targets: []string{"qkv"}, count: 2 * n, has: []string{"double_blocks.0.txt_attn.qkv"}},
		"canonical with stream": {targets: []string{"img_attn.*"}, count: 2 * n},
		"one block":             {targets: []string{"single_blocks.1.*"}, count: 2, hasNot: []string{"single_blocks.10.linear1"}},
		"a digit more":          {targets: []string{"single_blocks.1?.*"}, count: 20},
		"whole name":            {targets: []string{"single_blocks.3.linear2"}, count: 1},
		"diffusers parts":       {targets: []string{"to_q", "to_k", "to_v"}, count: 3 * n, has: []string{"transformer_blocks.0.attn.to_q"}},
		"diffusers text parts":  {targets: []string{"add_?_proj"}, count: 3 * n},
		"diffusers whole":       {targets: []string{"to_qkv_mlp_proj"}, count: m, has: []string{"single_blocks.0.linear1"}},
		"diffusers defaults":    {targets: []string{"to_k", "to_q", "to_v", "to_out.0", "to_qkv_mlp_proj"}, count: 4*n + m, has: []string{"double_blocks.0.img_attn.proj"}, hasNot: []string{"double_blocks.0.txt_attn.proj"}},
		"single output alone":   {targets: []string{"to_out"}, count: m, has: []string{"single_blocks.47.linear2"}},
		"all parts are listed":  {targets: []string{"ff.linear_in", "ff_context.linear_out"}, count: 2 * n, has: []string{"double_blocks.7.img_mlp.0", "double_blocks.7.txt_mlp.2"}},
		"exclude":               {exclude: []string{"double_blocks.*", "linear2"}, count: m},
		"exclude a part":        {targets: []string{"to_q", "to_k"}, exclude: []string{"transformer_blocks.0.attn.to_q"}, count: 2*n - 1},
		"twice":                 {targets: []string{"qkv", "double_blocks.0.img_attn.qkv"}, count: 2 * n},
	} {
		t.Run(name, func(t *testing.T) {
			targets, err := adapter.Select(c.Modules(), tc.targets, tc.exclude)
			require.NoError(t, err)
			var names []string
			for _, target := range targets {
				names = append(names, target.Name())
				if !target.Whole() {
					require.Equal(t, d, target.Hi-target.Lo)
				}
			}
			require.Len(t, names, tc.count, strings.Join(names, "\n"))
			require.Subset(t, names, tc.has)
			for _, absent := range tc.hasNot {
				require.NotContains(t, names, absent)
			}
		})
	}
}

func TestSelectRefuses(t *testing.T) {
	c := dev()
	for name, tc := range map[string]struct {
		targets, exclude []string
		want             []string
	}{
		"no match":          {targets: []string{"img_attn.qvk"}, want: []string{`"img_attn.qvk" matches no module`, `"img_attn.qkv"`}},
		"no match in part":  {targets: []string{"linear3"}, want: []string{`"linear1"`, `"linear2"`}},
		"exclude no match":  {exclude: []string{"to_z"}, want: []string{"exclude", "to_q"}},
		"bad glob":          {targets: []string{"[a"}, want: []string{"not a glob"}},
		"empty":             {targets: []string{""}, want: []string{"not a glob"}},
		"whole and part":    {targets: []string{"qkv", "to_q"}, want: []string{`"qkv" chooses all of`, `"to_q" a part`}},
		"exclude of a part": {exclude: []string{"to_q"}, want: []string{"chosen whole"}},
		"nothing left":      {exclude: []string{"*"}, want: []string{"none of the targets"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := adapter.Select(c.Modules(), tc.targets, tc.exclude)
			require.Error(t, err)
			for _, want := range tc.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}
