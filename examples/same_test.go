package examples_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Where weights are and what is kept of a pass never changes a result: the
// adapter has the same bytes. What is to change it does.
func TestSameAdapterWhereverBytesAre(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	train := func(t *testing.T, more ...string) string {
		p := &project{t: t, dir: p.dir}
		p.done(append(quick("pipeline.yaml", more...), "--restart")...)
		return string(p.read(adapter))
	}
	want := train(t, "stages.prefetch.offload=0")
	for name, settings := range map[string][]string{
		"half streamed":           {"stages.prefetch.offload=0.5"},
		"all streamed":            {"stages.prefetch.offload=1"},
		"a deeper ring":           {"stages.prefetch.offload=1", "stages.prefetch.ring=5"},
		"activations kept":        {"stages.prefetch.offload=0", "stages.train.recompute=none"},
		"kept and streamed":       {"stages.prefetch.offload=1", "stages.train.recompute=none"},
		"a ring, half streamed":   {"stages.prefetch.offload=0.5", "stages.prefetch.ring=5"},
		"text tower streamed too": {"stages.textembed.offload=1", "stages.textembed.cache=./streamed"},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, want == train(t, settings...), "the adapter differs")
		})
	}
	for name, settings := range map[string][]string{
		"clipped by block": {"stages.train.clip={norm: 0.1, scope: block}"},
		"not clipped":      {"stages.train.clip={norm: 0.1, scope: none}"},
		"another seed":     {"seed=7"},
		"8-bit weights":    {"stages.quantize.qtype=int8"},
	} {
		t.Run(name, func(t *testing.T) {
			require.False(t, want == train(t, settings...), "the setting has no effect")
		})
	}
}

// Updates inside the backward pass, a block at a time, are the same wherever
// the weights are.
func TestSameAdapterWithUpdatesInside(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	var want []byte
	for _, offload := range []string{"0", "0.5", "1"} {
		p.done(append(quick("pipeline.yaml", "stages.train.clip={norm: 0.1, scope: block}", "stages.prefetch.offload="+offload), "--restart")...)
		got := p.read(adapter)
		if want == nil {
			want = got
		}
		require.True(t, string(want) == string(got), "offload %s: the adapter differs", offload)
	}
}
