package latents

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"

	"longship/cache"
	"longship/internal/imageio"
	"longship/internal/ioretry"
)

// imageError is a fault of an image: it is set aside and the run goes on.
type imageError struct{ err error }

func (e *imageError) Error() string { return e.err.Error() }
func (e *imageError) Unwrap() error { return e.err }

// decoding turns images into pixels on several cores, ahead of the encoder and
// in its order. At most `workers` images are decoded or waiting at a time.
type decoding struct {
	results chan chan pixels // in order
	cancel  context.CancelFunc
	done    sync.WaitGroup
	spare   sync.Pool // of *[]float32
}

type pixels struct {
	data []float32 // [3, H, W] in [-1, 1]
	err  error
}

// startDecoding begins with the images at the indices. stop must be called.
func startDecoding(ctx context.Context, images []Image, at []int, workers int, resize imageio.Filter) *decoding {
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &decoding{results: make(chan chan pixels, workers), cancel: cancel}
	d.done.Add(1)
	go func() {
		defer d.done.Done()
		defer close(d.results)
		for _, i := range at {
			result := make(chan pixels, 1)
			select {
			case d.results <- result:
			case <-ctx.Done():
				return
			}
			d.done.Add(1)
			go func() {
				defer d.done.Done()
				data, err := d.decode(ctx, images[i], resize)
				result <- pixels{data, err}
			}()
		}
	}()
	return d
}

// next returns the pixels of the next image, or its imageError.
func (d *decoding) next(ctx context.Context) ([]float32, error) {
	select {
	case result, ok := <-d.results:
		if !ok {
			return nil, ctx.Err()
		}
		p := <-result
		return p.data, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// recycle gives back pixels that have been encoded.
func (d *decoding) recycle(p []float32) { d.spare.Put(&p) }

// stop ends the work in hand and waits for it.
func (d *decoding) stop() {
	d.cancel()
	d.done.Wait()
}

// decode reads an image, sees to it that it is the one that was listed, and
// brings it to its size.
func (d *decoding) decode(ctx context.Context, img Image, resize imageio.Filter) ([]float32, error) {
	var file []byte
	err := ioretry.Do(ctx, func() (err error) {
		file, err = readFile(img.Path)
		return err
	})
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, &imageError{err}
	}
	if cache.HashBytes(file) != img.Content {
		return nil, &imageError{fmt.Errorf("the file has changed since the run listed it; start the run again")}
	}
	m, err := imageio.Decode(bytes.NewReader(file), int64(len(file)), imageio.Alpha(img.Alpha))
	if err != nil {
		return nil, &imageError{err}
	}
	if img.Reference {
		m = m.Reference(resize)
	} else {
		m = m.Cover(img.Size.W, img.Size.H, resize)
	}
	if m.W != img.Size.W || m.H != img.Size.H {
		return nil, &imageError{fmt.Errorf("gives %dx%d pixels, not the %dx%d planned", m.W, m.H, img.Size.W, img.Size.H)}
	}
	out := d.take(3 * m.W * m.H)
	m.Planar(out)
	return out, nil
}

// take returns n floats, those of an earlier image where they fit.
func (d *decoding) take(n int) []float32 {
	if p, ok := d.spare.Get().(*[]float32); ok && cap(*p) >= n {
		return (*p)[:n]
	}
	return make([]float32, n)
}

func readFile(path string) ([]byte, error) {
	f, info, err := imageio.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, info.Size())
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return b, nil
}
