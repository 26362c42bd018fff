package cachefill

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/cache"
)

func TestMissing(t *testing.T) {
	store, err := cache.Open(t.Context(), t.TempDir(), cache.Options{})
	require.NoError(t, err)
	defer store.Close()
	var refs []cache.Ref
	for i := range 50 {
		ref := cache.Ref{Key: cache.NewKey("test").Int(i % 20).Sum(), DType: "f32", Shape: []int{2}}
		refs = append(refs, ref)
		if i < 20 && i%3 == 0 {
			require.NoError(t, store.Put(t.Context(), ref, Bytes([]float32{1, 2}, "f32")))
		}
	}
	var want []int
	for i := range 20 {
		if i%3 != 0 {
			want = append(want, i)
		}
	}
	got, err := Missing(t.Context(), store, refs)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestBytes(t *testing.T) {
	for dt, want := range map[string]string{"f32": "0000803f000000c0", "bf16": "803f00c0"} {
		require.Equal(t, want, fmt.Sprintf("%x", Bytes([]float32{1, -2}, dt)), dt)
	}
}
