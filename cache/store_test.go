package cache_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/cache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a cache for a test and closes it at its end.
func open(t testing.TB, dir string) *cache.Store {
	t.Helper()
	s, err := cache.Open(t.Context(), dir, cache.Options{Log: hclog.New(&hclog.LoggerOptions{Output: testWriter{t}, Level: hclog.Info}), Run: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(string(bytes.TrimSpace(p)))
	return len(p), nil
}

// blob returns n random bytes.
func blob(t testing.TB, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	_, err := rand.Read(p)
	require.NoError(t, err)
	return p
}

// ref names tensor i of a test.
func ref(i, n int) cache.Ref {
	return cache.Ref{Key: cache.NewKey("test").Int(i).Sum(), DType: "f32", Shape: []int{n / 4}, Kind: "latent"}
}

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
	check(open(t, dir))
}
