package sdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"longship/cache"
	"longship/pipeline"
	"longship/plugins/proto"
	"longship/plugins/tensors"
)

// open is how package tensors opens a cache here.
func (l *line) open(_ context.Context, dir string) (tensors.Store, error) {
	return &remote{l, dir}, nil
}

// remote has longship redeem the claim checks of a cache.
type remote struct {
	line *line
	dir  string
}

func (r *remote) Dir() string { return r.dir }

func (r *remote) Get(ctx context.Context, ref cache.Ref, dst []byte) ([]byte, error) {
	a, err := r.ask(ctx, "get", ref, "")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(r.line.scratch, filepath.Base(a.File))
	defer os.Remove(path)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	if cap(dst) >= len(data) {
		dst = dst[:len(data)]
		copy(dst, data)
		return dst, nil
	}
	return data, nil
}

func (r *remote) Has(ctx context.Context, ref cache.Ref) bool {
	a, err := r.ask(ctx, "has", ref, "")
	return err == nil && a.Found
}

func (r *remote) Put(ctx context.Context, ref cache.Ref, data []byte) error {
	f, err := os.CreateTemp(r.line.scratch, "put-")
	if err != nil {
		return fmt.Errorf("%s: %w", ref, err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", ref, err), os.Remove(f.Name()))
	}
	_, err = r.ask(ctx, "put", ref, filepath.Base(f.Name()))
	return err
}

// ask sends a request and waits for its answer.
func (r *remote) ask(ctx context.Context, op string, ref cache.Ref, file string) (*proto.Tensor, error) {
	claim, err := pipeline.Marshal(ref)
	if err != nil {
		return nil, err
	}
	l := r.line
	answer := make(chan *proto.Tensor, 1)
	l.mu.Lock()
	if l.broken != nil {
		l.mu.Unlock()
		return nil, l.broken
	}
	l.number++
	n := l.number
	l.answers[n] = answer
	l.mu.Unlock()
	if err := l.send(&proto.FromStage{Of: &proto.FromStage_Request{Request: &proto.TensorRequest{
		Number: n, Op: op, Cache: r.dir, Ref: claim, File: file,
	}}}); err != nil {
		return nil, err
	}
	select {
	case a, ok := <-answer:
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: the connection to longship is gone", ref)
		case a.Missing:
			return nil, fmt.Errorf("%s: %w", a.Error, cache.ErrNotFound)
		case a.Error != "":
			return nil, errors.New(a.Error)
		}
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
