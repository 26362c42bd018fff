package cache_test

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"longship/cache"
)

func TestPutGet(t *testing.T) {
	ctx := context.Background()
	sizes := []int{0, 4, 100, 4 << 10, 1 << 20, 5 << 20}
	dir := t.TempDir()
	s := open(t, dir)
	want := map[int][]byte{}
	for i, n := range sizes {
		require.False(t, s.Has(ctx, ref(i, n)))
		_, err := s.Get(ctx, ref(i, n), nil)
		require.ErrorIs(t, err, cache.ErrNotFound)
		want[i] = blob(t, n)
		require.NoError(t, s.Put(ctx, ref(i, n), want[i]))
	}
	check := func(s *cache.Store) {
		var dst []byte
		for i, n := range sizes {
			require.True(t, s.Has(ctx, ref(i, n)))
			var err error
			dst, err = s.Get(ctx, ref(i, n), dst)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want[i], dst))
		}
	}
	check(s)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "Close works twice")
	require.ErrorIs(t, s.Put(ctx, ref(0, 0), nil), cache.ErrClosed)
	_, err := s.Get(ctx, ref(0, 0), nil)
	require.ErrorIs(t, err, cache.ErrClosed)
	check(open(t, dir))
}

func TestGetReusesMemory(t *testing.T) {
	s := open(t, t.TempDir())
	require.NoError(t, s.Put(t.Context(), ref(1, 4096), blob(t, 4096)))
	dst := make([]byte, 0, 4096)
	got, err := s.Get(t.Context(), ref(1, 4096), dst)
	require.NoError(t, err)
	require.Same(t, &dst[:1][0], &got[0])
}

func TestPutReplaces(t *testing.T) {
	s := open(t, t.TempDir())
	require.NoError(t, s.Put(t.Context(), ref(1, 8), []byte("the old.")))
	require.NoError(t, s.Put(t.Context(), ref(1, 8), []byte("the new.")))
	got, err := s.Get(t.Context(), ref(1, 8), nil)
	require.NoError(t, err)
	require.Equal(t, "the new.", string(got))
}

func TestLargest(t *testing.T) {
	if !long() {
		t.Skip("set LONGSHIP_LONG=1: writes 256 MB")
	}
	s := open(t, t.TempDir())
	data := blob(t, cache.MaxTensor)
	require.NoError(t, s.Put(t.Context(), ref(1, len(data)), data))
	got, err := s.Get(t.Context(), ref(1, len(data)), nil)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	require.ErrorContains(t, s.Put(t.Context(), ref(2, 0), append(data, 0)), "at most")
}

// An entry asked for as something else than what was put is a fault of its
// key; it must not be read as if it were that.
func TestOtherShape(t *testing.T) {
	ctx := t.Context()
	for name, other := range map[string]cache.Ref{
		"dtype": {DType: "bf16", Shape: []int{2}},
		"shape": {DType: "f32", Shape: []int{3}},
		"rank":  {DType: "f32", Shape: []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			require.NoError(t, s.Put(ctx, ref(1, 8), blob(t, 8)))
			other.Key = ref(1, 8).Key
			_, err := s.Get(ctx, other, nil)
			require.ErrorIs(t, err, cache.ErrCorrupt)
			require.ErrorContains(t, err, "entry is f32[2]")
		})
	}
}

func TestConcurrent(t *testing.T) {
	s := open(t, t.TempDir())
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				r := ref(i, crashSize)
				if !s.Has(t.Context(), r) {
					if err := s.Put(t.Context(), r, pattern(i)); err != nil {
						t.Error(err)
					}
				}
				got, err := s.Get(t.Context(), r, nil)
				if err != nil || !bytes.Equal(got, pattern(i)) {
					t.Errorf("goroutine %d, tensor %d: %v", g, i, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestFactsAndLists(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	s := open(t, dir)
	content := cache.HashBytes([]byte("image"))
	_, err := s.Recall(ctx, content, "size")
	require.ErrorIs(t, err, cache.ErrNotFound)
	_, err = s.GetList(ctx, "photos")
	require.ErrorIs(t, err, cache.ErrNotFound)
	big := cache.List{Refs: make([]cache.Key, 500), Data: blob(t, 100<<10)}
	big.Refs[3] = content
	require.NoError(t, s.Remember(ctx, content, "size", []byte{1, 2}))
	require.NoError(t, s.Remember(ctx, content, "colour", nil))
	require.NoError(t, s.PutList(ctx, "photos", big))
	require.NoError(t, s.Close())

	s = open(t, dir)
	fact, err := s.Recall(ctx, content, "size")
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2}, fact)
	fact, err = s.Recall(ctx, content, "colour")
	require.NoError(t, err)
	require.Empty(t, fact)
	list, err := s.GetList(ctx, "photos")
	require.NoError(t, err)
	require.Equal(t, big, list)
}

// Against a map: reads give what was put last, and closing changes nothing.
func TestStoreModel(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	model := map[int][]byte{}
	check := func(rt require.TestingT, i int) {
		require.Equal(rt, model[i] != nil, s.Has(t.Context(), ref(i, 8)))
		got, err := s.Get(t.Context(), ref(i, 8), nil)
		if model[i] == nil {
			require.ErrorIs(rt, err, cache.ErrNotFound)
			return
		}
		require.NoError(rt, err)
		require.Equal(rt, model[i], got)
	}
	tensor := rapid.IntRange(0, 99)
	rapid.Check(t, func(rt *rapid.T) {
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				i := tensor.Draw(rt, "tensor")
				model[i] = bytes.Repeat([]byte{rapid.Byte().Draw(rt, "byte")}, 8)
				require.NoError(rt, s.Put(t.Context(), ref(i, 8), model[i]))
			},
			"get": func(rt *rapid.T) { check(rt, tensor.Draw(rt, "tensor")) },
		})
	})
	require.NoError(t, s.Close())
	s = open(t, dir)
	for i := range 100 {
		check(t, i)
	}
}
