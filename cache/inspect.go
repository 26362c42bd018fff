package cache

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// List yields every tensor, in the order of their keys. It reads no tensor.
func (s *Store) List(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		keys, err := s.keys([]byte{tagTensor})
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for _, key := range keys {
			e, err := s.describe(Key(key[1:]))
			if err == nil {
				err = ctx.Err()
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// describe returns what is known of a tensor; its key at least.
func (s *Store) describe(k Key) (Entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return Entry{}, ErrClosed
	}
	e, err := readInfo(s.db, k)
	if err != nil {
		return Entry{Ref: Ref{Key: k}}, nil
	}
	return e, nil
}

func (s *Store) keys(prefix []byte) (keys [][]byte, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return nil, ErrClosed
	}
	eachKey(s.db, prefix, func(key []byte) bool {
		keys = append(keys, key)
		return true
	})
	return keys, nil
}

// VerifyReport says what Verify found.
type VerifyReport struct {
	Entries int     // read and checked, tensors and records
	Tensors int     // of them tensors
	Bytes   int64   // of the tensors
	Damaged []Entry // tensors that were damaged, and have been dropped
}

// Verify reads everything and checks it, on all cores. Damaged tensors are named
// in the log and the report and dropped, damaged records are dropped. progress,
// if not nil, is called now and then, from one goroutine at a time.
func (s *Store) Verify(ctx context.Context, progress func(done, total int)) (VerifyReport, error) {
	var report VerifyReport
	keys, err := s.keys(nil)
	if err != nil {
		return report, err
	}
	var (
		mu    sync.Mutex
		done  int
		bytes atomic.Int64
	)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, key := range keys {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			bad, err := s.verify(key, &bytes)
			mu.Lock()
			defer mu.Unlock()
			done++
			if key[0] == tagTensor {
				report.Tensors++
			}
			if bad != nil {
				report.Damaged = append(report.Damaged, *bad)
			}
			if progress != nil && (done%64 == 0 || done == len(keys)) {
				progress(done, len(keys))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return report, fmt.Errorf("verify cache %s: %w", s.dir, err)
	}
	report.Entries, report.Bytes = done, bytes.Load()
	return report, nil
}

// verify checks one entry and returns the tensor that it was if it is damaged.
func (s *Store) verify(key []byte, bytes *atomic.Int64) (*Entry, error) {
	if key[0] == tagVersion {
		return nil, nil // read when the folder was opened
	}
	if key[0] != tagTensor {
		if _, err := s.record(key); errors.Is(err, ErrNotFound) {
			return nil, s.remove(key)
		}
		return nil, nil
	}
	e, err := s.describe(Key(key[1:]))
	if err != nil {
		return nil, err
	}
	err = s.tensor(e.Ref, func(payload []byte) { bytes.Add(int64(len(payload))) })
	if err != nil && !isGone(err) {
		return &e, nil
	}
	return nil, nil
}
