package latents

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"longship/cache"
	"longship/stages/port"
)

// imageList is the images of samples, those of one sample side by side: its
// own, then its references.
type imageList struct {
	images []Image
	of     []place
}

// place is what an image is to a sample.
type place struct {
	sample    int
	reference int // number of the reference, -1 for the sample's own image
	last      bool
}

func listImages(samples []port.Sample) imageList {
	var l imageList
	for i, s := range samples {
		l.images = append(l.images, Image{Path: string(s.Path), Content: s.Content, Alpha: s.Alpha, Size: s.Bucket})
		l.of = append(l.of, place{sample: i, reference: -1, last: len(s.References) == 0})
		for k, r := range s.References {
			l.images = append(l.images, Image{Path: string(r.Path), Content: r.Content, Alpha: s.Alpha, Size: r.Size, Reference: true})
			l.of = append(l.of, place{sample: i, reference: k, last: k == len(s.References)-1})
		}
	}
	return l
}

// errStopped says that the user asked for an end.
var errStopped = errors.New("stopped on request")

// sender returns a function that puts each image's latent into its sample, and
// sends a sample on when it is complete or sets it aside with the reason. With
// the last one it records the list.
func (s *stage) sender(ctx context.Context, samples []port.Sample, list imageList, store *cache.Store) func(i int, ref cache.Ref, err error) error {
	var fault, first error
	var sent []port.Sample
	progress := s.set.Meter(ctx, "images")
	return func(i int, ref cache.Ref, err error) error {
		at := list.of[i]
		sample := &samples[at.sample]
		switch {
		case err != nil && at.reference >= 0:
			fault = errors.Join(fault, fmt.Errorf("reference image %s: %w", shown(list.images[i].Path), err))
		case err != nil:
			fault = errors.Join(fault, err)
		case at.reference >= 0:
			sample.References[at.reference].Latent = ref
		default:
			sample.Latent = ref
		}
		progress(int64(i+1), int64(len(list.images)))
		if !at.last {
			return nil
		}
		if fault != nil {
			s.set.SetAside(ctx, shown(string(sample.Path)), fault)
			if first == nil {
				first = fmt.Errorf("%s: %w", shown(string(sample.Path)), fault)
			}
			fault = nil
		} else {
			sample.LatentCache = store.Dir()
			sent = append(sent, *sample)
			if err := s.out.Send(ctx, *sample); err != nil {
				return err
			}
		}
		if at.sample == len(samples)-1 {
			if len(sent) == 0 {
				return fmt.Errorf("none of the %d images can be used; the first is %w", len(samples), first)
			}
			return port.PutSamples(ctx, store, s.set.Env.Name+"/"+s.set.ID, sent)
		}
		if s.set.Env.Stopped() {
			return errStopped
		}
		return nil
	}
}

// shown is a path as it can be printed.
func shown(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return strconv.Quote(path)
}

// sides returns heights and widths.
func sides(sizes []port.Bucket) [][2]int {
	out := make([][2]int, len(sizes))
	for i, s := range sizes {
		out[i] = [2]int{s.H, s.W}
	}
	return out
}
