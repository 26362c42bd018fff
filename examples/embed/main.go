// Embed is a program of its own that fills a latent cache from a folder of
// images and reads it again, with longship's public packages and no pipeline.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"

	"longship/cache"
	"longship/gpu/cpu"
	"longship/stages/latents"
	"longship/stages/port"
)

func main() {
	folder := flag.String("images", "../quickstart/photos", "folder of images")
	vae := flag.String("vae", "../quickstart/model/vae", "folder of the VAE: FLUX.2-dev/vae")
	dir := flag.String("cache", "cache", "folder of the cache")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := fill(ctx, *folder, *vae, *dir); err != nil {
		log.Fatal(err)
	}
}

// fill encodes what is not in the cache yet, and prints the mean of every latent.
func fill(ctx context.Context, folder, vae, dir string) (err error) {
	store, err := cache.Open(ctx, dir, cache.Options{Run: "embed"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	dev, err := cpu.New()
	if err != nil {
		return err
	}
	defer dev.Close()

	images, faults := latents.Folder(folder, size)
	for _, f := range faults {
		log.Print("left out: ", f)
	}
	return latents.Encode(ctx, store, dev, images, latents.Options{VAE: vae}, func(i int, ref cache.Ref, err error) error {
		if err != nil {
			log.Print("left out: ", err)
			return nil
		}
		data, err := store.Get(ctx, ref, nil)
		if err != nil {
			return err
		}
		fmt.Println(filepath.Base(images[i].Path), ref.DType, ref.Shape, len(data), "bytes")
		return nil
	})
}

// size fits an image of w x h pixels into 128 x 128, on a grid of 16.
func size(w, h int) port.Bucket {
	scale := 128 / float64(max(w, h))
	grid := func(v int) int { return max(16, int(float64(v)*scale)/16*16) }
	return port.Bucket{W: grid(w), H: grid(h)}
}
