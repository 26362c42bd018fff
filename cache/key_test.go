package cache_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/cache"
)

// Fields that could be mistaken for each other give different keys.
func TestKeysDiffer(t *testing.T) {
	k := cache.HashBytes([]byte("x"))
	keys := map[string]*cache.KeyBuilder{
		"empty":          cache.NewKey("a"),
		"other domain":   cache.NewKey("b"),
		"ab c":           cache.NewKey("a").Text("ab").Text("c"),
		"a bc":           cache.NewKey("a").Text("a").Text("bc"),
		"bytes":          cache.NewKey("a").Bytes([]byte("ab")).Text("c"),
		"one int":        cache.NewKey("a").Int(1),
		"two ints":       cache.NewKey("a").Int(1).Int(2),
		"ints in one":    cache.NewKey("a").Int(1, 2),
		"float":          cache.NewKey("a").Float(1),
		"minus zero":     cache.NewKey("a").Float(math.Copysign(0, -1)),
		"zero":           cache.NewKey("a").Float(0),
		"true":           cache.NewKey("a").Bool(true),
		"false":          cache.NewKey("a").Bool(false),
		"key":            cache.NewKey("a").Key(k),
		"key as bytes":   cache.NewKey("a").Bytes(k[:]),
		"text of number": cache.NewKey("a").Text("1"),
	}
	seen := map[cache.Key]string{}
	for name, b := range keys {
		sum := b.Sum()
		require.Empty(t, seen[sum], name)
		seen[sum] = name
	}
}

// A change of this key would make every cache worthless.
func TestKeyIsPinned(t *testing.T) {
	k := cache.NewKey("latent/1").Text("t").Bytes([]byte{1}).Int(2, -3).Float(0.5).Bool(true).Key(cache.HashBytes(nil)).Sum()
	require.Equal(t, "8cad135e02486c6cc27e237e353c2e3844c28288edfe5c72ad2069cb0f664a70", k.String())
}
