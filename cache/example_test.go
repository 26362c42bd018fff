package cache_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"longship/cache"
)

// A value is made once: whoever asks for it again, in this run or a later one,
// gets it from the cache.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "cache")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, err := cache.Open(ctx, dir, cache.Options{Run: "example"})
	if err != nil {
		panic(err)
	}
	defer store.Close()

	image := cache.HashBytes([]byte("the bytes of a photo"))
	ref := cache.Ref{Key: cache.NewKey("latent/1").Key(image).Int(512, 512).Sum(), DType: "f32", Shape: []int{2}, Kind: "latent"}
	for range 2 {
		if store.Has(ctx, ref) {
			fmt.Println("known")
			continue
		}
		fmt.Println("encoded")
		if err := store.Put(ctx, ref, []byte{0, 0, 128, 63, 0, 0, 0, 64}); err != nil {
			panic(err)
		}
	}
	data, err := store.Get(ctx, ref, nil)
	fmt.Println(len(data), "bytes", err)
	// Output:
	// encoded
	// known
	// 8 bytes <nil>
}

// A second Open of a folder says who has it.
func ExampleOpen_busy() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "cache")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	store, err := cache.Open(ctx, dir, cache.Options{})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	_, err = cache.Open(ctx, dir, cache.Options{})
	fmt.Println(errors.Is(err, cache.ErrOpen))
	// Output: true
}
