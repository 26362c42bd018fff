package dataset

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"longship/cache"
	"longship/internal/ioretry"
	"longship/stages/port"
)

// picture is an image with all that is known of it.
type picture struct {
	found
	probed
	id         string // dataset and path, without the resolution
	text       string // final caption
	references []port.Reference
	validation bool
	err        error // why it cannot be used
}

// reader looks at many images at once.
type reader struct {
	cfg      *Config
	store    *cache.Store
	refs     *references
	progress func(done, total int64) // may be called from any goroutine
	stopping <-chan struct{}
}

// errStopped says that the user asked the run to stop.
var errStopped = errors.New("stopped")

// workers is how many files are looked at at a time: a little more than cores,
// since a disk answers several questions at once.
func workers() int { return 2*runtime.GOMAXPROCS(0) + 2 }

// read looks at the images; each result stands where its image stood. Faults of
// a file are in its picture; the error ends the run.
func (r *reader) read(ctx context.Context, images []found) ([]picture, error) {
	out := make([]picture, len(images))
	g, ctx := errgroup.WithContext(ctx)
	var next, done atomic.Int64
	for range min(workers(), len(images)) {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(images) {
					return nil
				}
				select {
				case <-r.stopping:
					return errStopped
				default:
				}
				out[i] = r.picture(ctx, images[i])
				if err := ctx.Err(); err != nil {
					return err
				}
				r.progress(done.Add(1), int64(len(images)))
			}
		})
	}
	return out, g.Wait()
}

func (r *reader) picture(ctx context.Context, f found) (p picture) {
	p.found = f
	if p.probed, p.err = probe(ctx, r.store, f.path); p.err != nil {
		return p
	}
	if p.err = p.trainable(); p.err != nil {
		return p
	}
	text := ""
	if f.caption != "" {
		err := ioretry.Do(ctx, func() (err error) {
			text, err = readCaption(f.caption, r.cfg.captionExt() == ".json")
			return err
		})
		if err != nil {
			p.err = fmt.Errorf("caption %s: %w", shown(f.caption), err)
			return p
		}
	}
	p.text = r.cfg.finalCaption(text)
	p.references, p.err = r.referencesOf(ctx, f.rel)
	return p
}

func (r *reader) referencesOf(ctx context.Context, rel string) ([]port.Reference, error) {
	if r.refs == nil {
		return nil, nil
	}
	paths, err := r.refs.of(rel)
	if err != nil {
		return nil, err
	}
	out := make([]port.Reference, len(paths))
	for i, path := range paths {
		p, err := probe(ctx, r.store, path)
		if err == nil {
			out[i], err = p.reference(path)
		}
		if err != nil {
			return nil, fmt.Errorf("reference image %s: %w", shown(path), err)
		}
	}
	return out, nil
}
