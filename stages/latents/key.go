package latents

import (
	"context"
	"encoding/json"
	"fmt"

	"longship/cache"
	"longship/internal/imageio"
	"longship/internal/vae"
	"longship/stages/port"
)

// version is the producer's: it is raised whenever the same inputs would give
// other latents, and with it every latent is encoded again. A test pins the
// hash of one output to it.
const version = "latent/1"

// Image is an image file and what becomes of it.
type Image struct {
	Path      string
	Content   cache.Key   // hash of the file's bytes; see cache.Store.File
	Alpha     string      // drop, white or black
	Size      port.Bucket // of the pixels that are encoded
	Reference bool        // a reference image: see imageio.Image.Reference
}

// fit names how an image is brought to its size: scaled until it covers the
// bucket, then cropped at the centre, or as reference images are.
func (img Image) fit() string {
	if img.Reference {
		return "reference"
	}
	return "cover, centre"
}

// keys makes the refs of latents: everything beside the image is fixed.
type keys struct {
	vae       cache.Key // the autoencoder's config and weights
	config    vae.Config
	resize    string
	precision string
	tile      int
}

// newKeys names the weights by the content of their files, which the store
// remembers, so that no device is needed.
func newKeys(ctx context.Context, store *cache.Store, files *vae.Files, opt Options) (keys, error) {
	config, err := json.Marshal(files.Config)
	if err != nil {
		return keys{}, err
	}
	id := cache.NewKey("autoencoder").Bytes(config)
	for _, path := range files.Weights {
		info, err := store.File(ctx, path)
		if err != nil {
			return keys{}, fmt.Errorf("autoencoder: %w", err)
		}
		id.Key(info.Content)
	}
	return keys{vae: id.Sum(), config: files.Config, resize: opt.Resize, precision: opt.Precision, tile: opt.Tile}, nil
}

// ref returns where the latent of an image is, or will be, in the cache.
func (k keys) ref(img Image) cache.Ref {
	stride := k.config.Stride()
	key := cache.NewKey(version).
		Key(img.Content).
		Int(imageio.Version).Text(img.Alpha).Text(img.fit()).Text(k.resize).
		Int(img.Size.W, img.Size.H).
		Key(k.vae).
		Text(k.precision).
		Text(vae.Plan(k.tile, img.Size.H, img.Size.W).String())
	return cache.Ref{
		Kind: "latent", Key: key.Sum(), DType: k.precision,
		Shape: []int{k.config.TokenChannels(), img.Size.H / stride, img.Size.W / stride},
	}
}
