package vae

import (
	"testing"

	"github.com/stretchr/testify/require"

	"longship/internal/golden"
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
