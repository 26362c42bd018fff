package latents_test

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log"
	"os"
	"path/filepath"

	"longship/cache"
	"longship/gpu/cpu"
	"longship/stages/latents"
	"longship/stages/port"
)

// Encode fills a cache from a folder of images, without a pipeline.
func ExampleEncode() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "latents")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	paint(filepath.Join(dir, "red.png"), color.RGBA{R: 255, A: 255})
	paint(filepath.Join(dir, "blue.png"), color.RGBA{B: 255, A: 255})

	store, err := cache.Open(ctx, filepath.Join(dir, "cache"), cache.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	dev, err := cpu.New()
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()

	images, faults := latents.Folder(dir, func(w, h int) port.Bucket { return port.Bucket{W: 64, H: 48} })
	for _, f := range faults {
		log.Print(f)
	}
	opt := latents.Options{VAE: "../../examples/quickstart/model/vae"} // in place of FLUX.2-dev/vae
	err = latents.Encode(ctx, store, dev, images, opt, func(i int, ref cache.Ref, err error) error {
		fmt.Println(filepath.Base(images[i].Path), ref.DType, ref.Shape, err)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// blue.png f32 [16 3 4] <nil>
	// red.png f32 [16 3 4] <nil>
}

func paint(path string, c color.Color) {
	m := image.NewRGBA(image.Rect(0, 0, 64, 48))
	for i := range 64 * 48 {
		m.Set(i%64, i/64, c)
	}
	f, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	if err := png.Encode(f, m); err != nil {
		log.Fatal(err)
	}
}
