package port

import (
	"context"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"longship/cache"
)

// sampleList is how a list of samples is recorded in a cache.
type sampleList struct {
	Version int      `cbor:"version"`
	Samples []Sample `cbor:"samples"`
}

// listVersion is raised when Sample changes so that older lists would be misread.
const listVersion = 1

// PutSamples records samples as a list in a cache, under a name. The list names
// every tensor that the samples refer to, so that cleaning keeps them.
func PutSamples(ctx context.Context, store *cache.Store, name string, samples []Sample) error {
	data, err := cbor.Marshal(sampleList{listVersion, samples})
	if err != nil {
		return fmt.Errorf("record samples %s: %w", name, err)
	}
	return store.PutList(ctx, name, cache.List{Refs: keysOf(samples), Data: data})
}

// keysOf returns the keys of all contents and tensors that samples refer to, once each.
func keysOf(samples []Sample) []cache.Key {
	var keys []cache.Key
	seen := map[cache.Key]bool{{}: true} // the zero key stands for nothing
	add := func(k cache.Key) {
		if !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	for _, s := range samples {
		add(s.Content)
		add(s.Latent.Key)
		add(s.Text.Key)
		add(s.TextDropped.Key)
		for _, r := range s.References {
			add(r.Content)
			add(r.Latent.Key)
		}
	}
	return keys
}

// GetSamples returns the samples recorded under a name. cache.ErrNotFound says
// that there are none, or that they are of another version.
func GetSamples(ctx context.Context, store *cache.Store, name string) ([]Sample, error) {
	list, err := store.GetList(ctx, name)
	if err != nil {
		return nil, err
	}
	mode, err := cbor.DecOptions{MaxArrayElements: 1 << 27}.DecMode()
	if err != nil {
		return nil, err
	}
	var s sampleList
	if err := mode.Unmarshal(list.Data, &s); err != nil {
		return nil, errors.Join(fmt.Errorf("list %s: %w", name, cache.ErrNotFound), err)
	}
	if s.Version != listVersion {
		return nil, fmt.Errorf("list %s has version %d, %d is read: %w", name, s.Version, listVersion, cache.ErrNotFound)
	}
	return s.Samples, nil
}
