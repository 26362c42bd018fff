package cache_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"

	"longship/cache"
)

// smallStore fills a cache in dir over two sessions and returns what is in it.
func smallStore(t testing.TB, dir string) map[int][]byte {
	t.Helper()
	want := map[int][]byte{}
	for session := range 2 {
		s := open(t, dir)
		for i := session * 4; i < session*4+4; i++ {
			want[i] = blob(t, 5<<10)
			require.NoError(t, s.Put(t.Context(), ref(i, len(want[i])), want[i]))
		}
		require.NoError(t, s.PutList(t.Context(), "photos", cache.List{Data: []byte("list")}))
		require.NoError(t, s.Close())
	}
	return want
}

// lost opens the store in dir, puts again what is not there, checks that
// nothing is misread, and returns how many tensors had to be put, with the log.
func lost(t *testing.T, dir string, want map[int][]byte) (n int, log string) {
	t.Helper()
	var out bytes.Buffer
	s, err := cache.Open(t.Context(), dir, cache.Options{Log: hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info})})
	require.NoError(t, err)
	for i, data := range want {
		r := ref(i, len(data))
		if !s.Has(t.Context(), r) {
			n++
			_, err := s.Get(t.Context(), r, nil)
			require.ErrorIs(t, err, cache.ErrNotFound)
			require.NoError(t, s.Put(t.Context(), r, data))
		}
		got, err := s.Get(t.Context(), r, nil)
		require.NoError(t, err)
		require.True(t, bytes.Equal(got, data), "tensor %d is misread", i)
	}
	if list, err := s.GetList(t.Context(), "photos"); err == nil {
		require.Equal(t, "list", string(list.Data))
	}
	require.NoError(t, s.Close())
	return n, out.String()
}

// storeFiles lists the files of a closed cache, relative to its folder.
func storeFiles(t testing.TB, dir string) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.json", "badger/*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		for _, name := range found {
			rel, err := filepath.Rel(dir, name)
			require.NoError(t, err)
			names = append(names, filepath.ToSlash(rel))
		}
	}
	return names
}

// flipped copies a cache and flips a bit of one byte of one file. The folder's
// name is one that a glob pattern would not match.
func flipped(t testing.TB, whole, name string, at int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "[cache]")
	require.NoError(t, os.CopyFS(dir, os.DirFS(whole)))
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[at] ^= 0x40
	require.NoError(t, os.WriteFile(path, data, 0o644))
	return dir
}

// positions spreads n positions over a file.
func positions(t testing.TB, path string, n int) (at []int) {
	t.Helper()
	switch {
	case long():
		n *= 20
	case testing.Short():
		n = 1
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	step := max(1, int(info.Size())/n)
	for i := 0; i < int(info.Size()); i += step {
		at = append(at, i)
	}
	return at
}

func TestFlippedByte(t *testing.T) {
	whole := t.TempDir()
	want := smallStore(t, whole)
	for _, name := range storeFiles(t, whole) {
		t.Run(name, func(t *testing.T) {
			for _, at := range positions(t, filepath.Join(whole, name), 4) {
				dir := flipped(t, whole, name, at)
				n, log := lost(t, dir, want)
				switch {
				case strings.HasSuffix(name, ".vlog"):
					require.LessOrEqual(t, n, 1, "byte %d", at)
					if n == 1 {
						require.Contains(t, log, "tensor is damaged")
					}
				case name == "seal.json", name == "badger/DISCARD":
					require.Zero(t, n, "byte %d", at)
				default:
					require.Contains(t, log, "set aside", "byte %d", at)
					require.DirExists(t, filepath.Join(dir, "badger.damaged-1"))
				}
			}
		})
	}
}

// After a crash there is no seal to compare with: Badger's own checks decide,
// and nothing may end the process.
func TestFlippedByteUnsealed(t *testing.T) {
	whole := t.TempDir()
	want := smallStore(t, whole)
	require.NoError(t, os.Remove(filepath.Join(whole, "seal.json")))
	for _, name := range storeFiles(t, whole) {
		if !strings.HasSuffix(name, ".sst") && !strings.HasSuffix(name, ".vlog") && !long() {
			continue // Badger leaves goroutines behind when it fails on the others
		}
		t.Run(name, func(t *testing.T) {
			for _, at := range positions(t, filepath.Join(whole, name), 3) {
				lost(t, flipped(t, whole, name, at), want)
			}
		})
	}
}

func TestDamagedTwice(t *testing.T) {
	dir := t.TempDir()
	want := smallStore(t, dir)
	for n := 1; n <= 2; n++ {
		bad := flipped(t, dir, "badger/KEYREGISTRY", 3)
		_, log := lost(t, bad, want)
		require.Contains(t, log, "KEYREGISTRY is damaged")
		dir = bad
		require.DirExists(t, filepath.Join(dir, "badger.damaged-1"))
	}
	require.DirExists(t, filepath.Join(dir, "badger.damaged-2"))
	report, err := open(t, dir).GC(t.Context(), cache.GCOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{"badger.damaged-1", "badger.damaged-2"}, report.Aside)
}

// A damaged tensor that is read without being asked for first is an error that
// names it, and is gone afterwards.
func TestGetDamaged(t *testing.T) {
	whole := t.TempDir()
	want := smallStore(t, whole)
	dir := flipped(t, whole, "badger/000001.vlog", 3000)
	s := open(t, dir)
	var damaged []int
	for i, data := range want {
		_, err := s.Get(t.Context(), ref(i, len(data)), nil)
		if err == nil {
			continue
		}
		require.ErrorIs(t, err, cache.ErrCorrupt)
		require.ErrorContains(t, err, "latent f32[1280] "+ref(i, len(data)).Key.String()[:16])
		_, err = s.Get(t.Context(), ref(i, len(data)), nil)
		require.ErrorIs(t, err, cache.ErrNotFound)
		damaged = append(damaged, i)
	}
	require.Len(t, damaged, 1)
}

// After a crash a tensor is read once before it is trusted, and the seal
// remembers for which that is still to be done.
func TestUncheckedIsRemembered(t *testing.T) {
	whole := t.TempDir()
	want := smallStore(t, whole)
	require.NoError(t, os.Remove(filepath.Join(whole, "seal.json")))

	s := open(t, whole)
	require.True(t, s.Has(t.Context(), ref(0, len(want[0]))))
	require.NoError(t, s.Close())

	// Damage that the stamps do not show: found in tensors that were not checked.
	path := filepath.Join(whole, "badger", "000001.vlog")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := 1; i < 4; i++ {
		at := bytes.Index(data, want[i][:16])
		require.Positive(t, at)
		data[at+100] ^= 1
	}
	require.NoError(t, os.WriteFile(path, data, 0o644))
	cache.ResealForTest(t, whole)

	s = open(t, whole)
	require.True(t, s.Has(t.Context(), ref(0, len(want[0]))))
	for i := 1; i < 4; i++ {
		require.False(t, s.Has(t.Context(), ref(i, len(want[i]))), "tensor %d", i)
	}
	for i := 4; i < 8; i++ {
		require.True(t, s.Has(t.Context(), ref(i, len(want[i]))), "tensor %d", i)
	}
}
