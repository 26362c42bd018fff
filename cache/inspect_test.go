package cache_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"longship/cache"
	"longship/cache/atomicfile"
)

func list(t testing.TB, s *cache.Store) map[cache.Key]cache.Entry {
	t.Helper()
	out := map[cache.Key]cache.Entry{}
	for e, err := range s.List(t.Context()) {
		require.NoError(t, err)
		out[e.Ref.Key] = e
	}
	return out
}

func TestList(t *testing.T) {
	s := open(t, t.TempDir())
	r := cache.Ref{Key: cache.NewKey("x").Sum(), DType: "bf16", Shape: []int{2, 3}, Kind: "text"}
	require.NoError(t, s.Put(t.Context(), r, make([]byte, 6)))
	e := list(t, s)[r.Key]
	require.Equal(t, r, e.Ref)
	require.EqualValues(t, 6, e.Bytes, "shorter than the shape says")
	require.WithinDuration(t, time.Now(), e.Used, 2*time.Second)
}

func TestVerify(t *testing.T) {
	whole := t.TempDir()
	want := smallStore(t, whole)
	dir := flipped(t, whole, "badger/000001.vlog", 3000)
	s := open(t, dir)
	var last, total int
	report, err := s.Verify(t.Context(), func(done, n int) { last, total = done, n })
	require.NoError(t, err)
	require.Equal(t, total, last)
	require.Equal(t, len(want), report.Tensors)
	require.Len(t, report.Damaged, 1)
	require.Equal(t, "latent", report.Damaged[0].Ref.Kind)
	require.EqualValues(t, (len(want)-1)*5<<10, report.Bytes)
	report, err = s.Verify(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, report.Damaged)
	require.Len(t, list(t, s), len(want)-1)
}

func TestGC(t *testing.T) {
	ctx := t.Context()
	const size = 1 << 20
	dir := t.TempDir()
	s := open(t, dir)
	n := 30
	if long() {
		n = 600 // several value logs
	}
	data := blob(t, size)
	var kept cache.List
	for i := range n {
		require.NoError(t, s.Put(ctx, ref(i, size), data))
		if i%3 == 0 {
			kept.Refs = append(kept.Refs, ref(i, size).Key)
		}
	}
	require.NoError(t, s.PutList(ctx, "photos", kept))

	paths := knownFiles(t, s, 3)
	for _, p := range paths {
		info, err := s.File(ctx, p)
		require.NoError(t, err)
		require.NoError(t, s.Remember(ctx, info.Content, "size", []byte{1}))
	}
	require.NoError(t, os.Remove(paths[0]))
	require.NoError(t, s.Close())

	s = open(t, dir)
	report, err := s.GC(ctx, cache.GCOptions{UnusedSince: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	require.Zero(t, report.Tensors, "all have been used")
	require.Equal(t, 1, report.Files)
	require.Equal(t, 1, report.Facts)

	report, err = s.GC(ctx, cache.GCOptions{Unlisted: true})
	require.NoError(t, err)
	require.Equal(t, n-len(kept.Refs), report.Tensors)
	require.EqualValues(t, report.Tensors*size, report.Bytes)
	require.Less(t, report.After, report.Before-int64(n/2)*size)
	for i := range n {
		require.Equal(t, i%3 == 0, s.Has(ctx, ref(i, size)))
	}
	got, err := s.Get(ctx, ref(0, size), nil)
	require.NoError(t, err)
	require.Equal(t, data, got)

	report, err = s.GC(ctx, cache.GCOptions{UnusedSince: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, len(kept.Refs), report.Tensors)
	require.Empty(t, list(t, s))
	require.NoError(t, s.Put(ctx, ref(1, size), data), "the store goes on")
}

// Collecting a value log with a damaged entry loses the entries behind it; they
// must be found missing then, not later.
func TestGCAfterDamage(t *testing.T) {
	ctx := t.Context()
	whole := t.TempDir()
	want := smallStore(t, whole)
	dir := flipped(t, whole, "badger/000001.vlog", 3000)
	s := open(t, dir)
	_, err := s.Verify(ctx, nil)
	require.NoError(t, err)
	_, err = s.GC(ctx, cache.GCOptions{})
	require.NoError(t, err)
	for i, data := range want {
		if s.Has(ctx, ref(i, len(data))) {
			got, err := s.Get(ctx, ref(i, len(data)), nil)
			require.NoError(t, err)
			require.Equal(t, data, got)
		}
	}
}

func TestGCRemovesAside(t *testing.T) {
	dir := t.TempDir()
	want := smallStore(t, dir)
	dir = flipped(t, dir, "badger/MANIFEST", 20)
	lost(t, dir, want)
	s := open(t, dir)
	report, err := s.GC(t.Context(), cache.GCOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"badger.damaged-1"}, report.Aside)
	require.NoDirExists(t, filepath.Join(dir, "badger.damaged-1"))
}

func TestKeptFiles(t *testing.T) {
	s := open(t, t.TempDir())
	for name, age := range map[string]time.Duration{"old.lsq": 50 * time.Hour, "new.lsq": time.Hour, "used.lsq": 50 * time.Hour, "torn.lsq" + atomicfile.Partial: 0} {
		path, err := s.Kept("quantised", name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, make([]byte, 1000), 0o644))
		require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(-age)))
		if name == "used.lsq" {
			require.NoError(t, s.Keep(path))
		}
	}
	names := func(files []cache.KeptFile) (out []string) {
		for _, f := range files {
			require.Equal(t, "quantised", f.Kind)
			require.EqualValues(t, 1000, f.Bytes)
			out = append(out, filepath.Base(f.Path))
		}
		return out
	}
	all, err := s.KeptFiles()
	require.NoError(t, err)
	require.Len(t, all, 4)
	report, err := s.GC(t.Context(), cache.GCOptions{Unlisted: true})
	require.NoError(t, err)
	require.Equal(t, []string{"torn.lsq" + atomicfile.Partial}, names(report.Kept), "age does not matter without UnusedSince")
	report, err = s.GC(t.Context(), cache.GCOptions{UnusedSince: time.Now().Add(-24 * time.Hour)})
	require.NoError(t, err)
	require.Equal(t, []string{"old.lsq"}, names(report.Kept))
	left, err := s.KeptFiles()
	require.NoError(t, err)
	require.Equal(t, []string{"new.lsq", "used.lsq"}, names(left))
}
