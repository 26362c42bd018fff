package dataset

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"longship/cache"
	"longship/internal/imageio"
	"longship/internal/ioretry"
	"longship/stages/port"
)

// Sizes that an image must have to be trained on, or to be a reference.
const (
	minSide      = grid // below, there is no whole latent token without enlarging
	minReference = 64
	maxRefAspect = 8
	maxFile      = 2 << 30 // bytes; images of imageio.MaxPixels are smaller
)

// probed is what the header of an image file says, and its content's name.
type probed struct {
	content       cache.Key
	width, height int // as shown
	orientation   int
}

// sizeFact names the fact that the cache keeps of an image's content.
var sizeFact = fmt.Sprintf("image size, imageio %d", imageio.Version)

// probe returns what is known of an image file, from the cache where it is known
// there.
func probe(ctx context.Context, store *cache.Store, path string) (probed, error) {
	var p probed
	err := ioretry.Do(ctx, func() error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if err := imageio.CheckRegular(info.Mode()); err != nil {
			return err
		}
		if info.Size() > maxFile {
			return fmt.Errorf("has %d bytes, more than an image can have (%d)", info.Size(), int64(maxFile))
		}
		if info.Size() == 0 {
			return imageio.ErrEmpty
		}
		file, err := store.File(ctx, path)
		if err != nil {
			return err
		}
		p.content = file.Content
		fact, err := store.Recall(ctx, p.content, sizeFact)
		if err == nil && p.parse(fact) {
			return nil
		}
		if err != nil && !errors.Is(err, cache.ErrNotFound) {
			return err
		}
		h, err := imageio.ReadHeaderFile(path)
		if err != nil {
			return err
		}
		p.width, p.height, p.orientation = h.Width, h.Height, h.Orientation
		return store.Remember(ctx, p.content, sizeFact, p.fact())
	})
	return p, err
}

func (p *probed) fact() []byte {
	b := binary.AppendUvarint(nil, uint64(p.width))
	b = binary.AppendUvarint(b, uint64(p.height))
	return append(b, byte(p.orientation))
}

func (p *probed) parse(b []byte) bool {
	w, n := binary.Uvarint(b)
	if n <= 0 {
		return false
	}
	h, m := binary.Uvarint(b[n:])
	if m <= 0 || len(b) != n+m+1 {
		return false
	}
	p.width, p.height, p.orientation = int(w), int(h), int(b[n+m])
	return true
}

// trainable says whether an image can be trained on.
func (p *probed) trainable() error {
	if side := min(p.width, p.height); side < minSide {
		return fmt.Errorf("%dx%d: the shorter side has %d pixels, at least %d are needed", p.width, p.height, side, minSide)
	}
	return nil
}

// reference describes an image as a reference image.
func (p *probed) reference(path string) (port.Reference, error) {
	short, long := min(p.width, p.height), max(p.width, p.height)
	if short < minReference {
		return port.Reference{}, fmt.Errorf("%dx%d: the shorter side of a reference image has at least %d pixels", p.width, p.height, minReference)
	}
	if long > maxRefAspect*short {
		return port.Reference{}, fmt.Errorf("%dx%d: a reference image is at most %d times as long as wide", p.width, p.height, maxRefAspect)
	}
	w, h := imageio.ReferenceSize(p.width, p.height)
	return port.Reference{
		Path: []byte(path), Content: p.content,
		Width: p.width, Height: p.height, Orientation: p.orientation,
		Size: port.Bucket{W: w, H: h},
	}, nil
}
