package textembed

import (
	"context"
	"encoding/json"
	"fmt"

	"longship/cache"
	"longship/internal/texttower"
)

// version is the producer's: it is raised whenever the same inputs would give
// other embeddings, and with it every caption is encoded again. A test pins the
// hash of one output to it.
const version = "text/1"

// keys makes the refs of embeddings: everything beside the caption is fixed.
type keys struct {
	fixed     cache.Key
	shape     []int
	precision string
}

// newKeys names tower and tokenizer by the content of their files, which the
// store remembers, so that no device is needed.
func newKeys(ctx context.Context, store *cache.Store, files *texttower.Files, prompts *texttower.Prompter, opt Options) (keys, error) {
	config, err := json.Marshal(files.Config)
	if err != nil {
		return keys{}, err
	}
	b := cache.NewKey(version).Bytes(config)
	for _, path := range files.Paths() {
		info, err := store.File(ctx, path)
		if err != nil {
			return keys{}, fmt.Errorf("text encoder: %w", err)
		}
		b.Key(info.Content)
	}
	b.Text(files.Family.Template)
	for _, s := range files.Family.Remove {
		b.Text(s)
	}
	tokenizer, err := store.File(ctx, prompts.Path())
	if err != nil {
		return keys{}, fmt.Errorf("tokenizer: %w", err)
	}
	b.Key(tokenizer.Content).Text(prompts.PadRule()).Int(opt.MaxLength).
		Text(opt.QType).Int(files.Layers...).Text(opt.Precision)
	return keys{fixed: b.Sum(), shape: []int{opt.MaxLength, files.Width()}, precision: opt.Precision}, nil
}

// ref returns where the embedding of a caption is, or will be, in the cache.
func (k keys) ref(caption string) cache.Ref {
	return cache.Ref{Kind: "text", Key: cache.NewKey(version).Key(k.fixed).Text(caption).Sum(), DType: k.precision, Shape: k.shape}
}
