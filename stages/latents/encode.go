package latents

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"longship/cache"
	"longship/gpu"
	"longship/internal/cachefill"
	"longship/internal/vae"
	"longship/stages/port"
)

// Options say how images are encoded. Fields have the meaning of Config's.
type Options struct {
	VAE       string // the autoencoder: a folder or a safetensors file
	Tile      int
	Resize    string // bicubic where empty
	Precision string // f32 where empty
	Workers   int
}

// Encode puts the latents of images into a cache, without a pipeline. It calls
// each once for every image, in order, with the place of its latent or the
// reason why there is none; an error of each ends it. Latents that are in the
// cache already cost a look-up: the autoencoder is loaded, and the device used,
// only if one is missing. An image without Content is hashed first.
func Encode(ctx context.Context, store *cache.Store, dev gpu.Device, images []Image, opt Options, each func(i int, ref cache.Ref, err error) error) error {
	d := Default()
	opt.Resize, opt.Precision = cmp.Or(opt.Resize, d.Resize), cmp.Or(opt.Precision, d.Precision)
	images = append([]Image(nil), images...)
	for i := range images {
		if images[i].Content == (cache.Key{}) {
			info, err := store.File(ctx, images[i].Path)
			if err != nil {
				return err
			}
			images[i].Content = info.Content
		}
	}
	files, err := vae.Open(opt.VAE)
	if err != nil {
		return err
	}
	defer files.Close()
	ks, err := newKeys(ctx, store, files, opt)
	if err != nil {
		return err
	}
	w := work{store: store, keys: ks, workers: opt.Workers, open: func(ctx context.Context, _ []port.Bucket) (encoder, error) {
		return files.Encoder(ctx, dev, opt.Tile)
	}}
	_, err = w.run(ctx, images, each)
	return err
}

// encoder is an autoencoder that is ready: pixels [3, H, W] in [-1, 1] to a
// normalised latent.
type encoder interface {
	Encode(ctx context.Context, pixels []float32, h, w int) ([]float32, error)
	Close() error
}

// work encodes a list of images.
type work struct {
	store   *cache.Store
	keys    keys
	workers int
	// open gives the encoder for the sizes that are missing; its Close gives back
	// all that it holds. Called at most once a run.
	open func(ctx context.Context, sizes []port.Bucket) (encoder, error)
}

// counts says what a run has done.
type counts struct{ hits, encoded, failed int }

// run goes through the images in order. The encoder is opened at the first miss
// and closed after the last, before the hits behind it are told.
func (w work) run(ctx context.Context, images []Image, each func(i int, ref cache.Ref, err error) error) (n counts, err error) {
	refs := make([]cache.Ref, len(images))
	for i, img := range images {
		refs[i] = w.keys.ref(img)
	}
	missing, err := cachefill.Missing(ctx, w.store, refs)
	if err != nil {
		return n, err
	}
	var enc encoder
	closeEncoder := func() error {
		if enc == nil {
			return nil
		}
		e := enc
		enc = nil
		return e.Close()
	}
	defer func() { err = errors.Join(err, closeEncoder()) }()

	if len(missing) > 0 {
		if enc, err = w.open(ctx, sizesOf(images, missing)); err != nil {
			return n, err
		}
	}
	pixels := startDecoding(ctx, images, missing, w.workers, filters[w.keys.resize])
	defer pixels.stop()

	failed := map[cache.Key]error{}
	next := 0 // in missing
	for i, ref := range refs {
		if next < len(missing) && missing[next] == i {
			next++
			encodeErr := w.encode(ctx, enc, ref, images[i], pixels)
			var broken *imageError
			if errors.As(encodeErr, &broken) {
				failed[ref.Key] = broken.err
			} else if encodeErr != nil {
				return n, fmt.Errorf("%s: %w", images[i].Path, encodeErr)
			} else {
				n.encoded++
			}
			if next == len(missing) {
				if err := closeEncoder(); err != nil {
					return n, err
				}
			}
		} else if failed[ref.Key] == nil {
			n.hits++
		}
		if err := failed[ref.Key]; err != nil {
			n.failed++
			ref = cache.Ref{}
			if err := each(i, ref, err); err != nil {
				return n, err
			}
			continue
		}
		if err := each(i, ref, nil); err != nil {
			return n, err
		}
	}
	return n, nil
}

// encode takes the image's pixels, which are the next decoded, and stores its latent.
func (w work) encode(ctx context.Context, enc encoder, ref cache.Ref, img Image, pixels *decoding) error {
	px, err := pixels.next(ctx)
	if err != nil {
		return err
	}
	latent, err := enc.Encode(ctx, px, img.Size.H, img.Size.W)
	if err != nil {
		return err
	}
	pixels.recycle(px)
	return w.store.Put(ctx, ref, cachefill.Bytes(latent, ref.DType))
}

// sizesOf returns the different sizes among the images at the indices.
func sizesOf(images []Image, at []int) []port.Bucket {
	var sizes []port.Bucket
	seen := map[port.Bucket]bool{}
	for _, i := range at {
		if s := images[i].Size; !seen[s] {
			seen[s] = true
			sizes = append(sizes, s)
		}
	}
	return sizes
}
