package latentcache_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"longship/cache"
	"longship/gpu/cpu"
	"longship/stages/latents"
	"longship/stages/port"
)

// Example encodes two photos into a cache and reads one latent back. Asked
// again, nothing is encoded: the autoencoder is not even loaded. (The latents of
// the quickstart's small model have 16 channels, those of FLUX.2 have 128.)
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "latents")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := cache.Open(ctx, dir, cache.Options{Run: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	device, err := cpu.New()
	if err != nil {
		log.Fatal(err)
	}
	defer device.Close()

	images := []latents.Image{
		{Path: "../quickstart/photos/cat.jpg", Size: port.Bucket{W: 128, H: 128}},
		{Path: "../quickstart/photos/coffee.jpg", Size: port.Bucket{W: 160, H: 96}},
	}
	options := latents.Options{VAE: "../quickstart/model/vae"}
	for range 2 {
		err = latents.Encode(ctx, store, device, images, options, func(i int, ref cache.Ref, err error) error {
			if err != nil {
				return err
			}
			data, err := store.Get(ctx, ref, nil)
			fmt.Println(ref.DType, ref.Shape, len(data), "bytes")
			return err
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// f32 [16 8 8] 4096 bytes
	// f32 [16 6 10] 3840 bytes
	// f32 [16 8 8] 4096 bytes
	// f32 [16 6 10] 3840 bytes
}
