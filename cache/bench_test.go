package cache_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/cache"
)

// sizes of a latent of 512 px, one of 1024 px, and a text embedding of 100 tokens.
var benchSizes = []int{128 * 32 * 32 * 4, 128 * 64 * 64 * 4, 100 * 15360 * 2}

func BenchmarkGet(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s := open(b, b.TempDir())
			const n = 32
			for i := range n {
				require.NoError(b, s.Put(b.Context(), ref(i, size), blob(b, size)))
			}
			var dst []byte
			b.SetBytes(int64(size))
			for i := 0; b.Loop(); i++ {
				var err error
				if dst, err = s.Get(b.Context(), ref(i%n, size), dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPut(b *testing.B) {
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s := open(b, b.TempDir())
			data := blob(b, size)
			b.SetBytes(int64(size))
			for i := 0; b.Loop(); i++ {
				if err := s.Put(b.Context(), ref(i%64, size), data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHas(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir)
	require.NoError(b, s.Put(b.Context(), ref(0, 4096), blob(b, 4096)))
	require.NoError(b, s.Close())
	s = open(b, dir)
	for b.Loop() {
		if !s.Has(b.Context(), ref(0, 4096)) {
			b.Fatal("gone")
		}
	}
}

func BenchmarkKnownFile(b *testing.B) {
	s := open(b, b.TempDir())
	paths := knownFiles(b, s, 1000)
	for i := 0; b.Loop(); i++ {
		if _, err := s.File(b.Context(), paths[i%len(paths)]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHash is a file that is not known.
func BenchmarkHash(b *testing.B) {
	path := filepath.Join(b.TempDir(), "weights")
	const size = 64 << 20
	require.NoError(b, os.WriteFile(path, blob(b, size), 0o644))
	s := openWith(b, b.TempDir(), cache.Options{Rehash: true})
	b.SetBytes(size)
	for b.Loop() {
		if _, err := s.File(b.Context(), path); err != nil {
			b.Fatal(err)
		}
	}
}
