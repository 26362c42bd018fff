package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/hashicorp/go-hclog"

	"longship/cache/folderlock"
)

// The first byte of an entry's key says what it is.
const (
	tagTensor  = 't' // + Key: a tensor
	tagInfo    = 'i' // + Key: what a tensor is and when it was last used, for listings
	tagFile    = 'f' // + path: stamp and content key of a file
	tagFact    = 'c' // + Key + name: a fact about a content
	tagList    = 'l' // + name: a recorded list
	tagVersion = 'v' // the format's version
	tagDamage  = 'd' // set once a damaged tensor has been dropped
)

// Store is an open cache folder.
type Store struct {
	dir    string // symbolic links resolved
	log    hclog.Logger
	rehash bool

	mu   sync.RWMutex     // held for reading by every operation, for writing by Close and GC
	db   *badger.DB       // nil once closed
	lock *folderlock.Lock // nil once closed

	wrote atomic.Bool // something was put, so the value log has grown

	room roomKeeper

	trackMu   sync.Mutex
	used      map[Key]struct{} // used since the last flush
	unchecked map[Key]struct{} // may have changed since the folder was sealed: to be read before they are trusted
}

// Dir returns the store's folder.
func (s *Store) Dir() string { return s.dir }

// Put stores a tensor under ref.Key, replacing what is there. data is the
// tensor's bytes, little-endian; it may be shorter than ref's shape says where
// its reader knows how to fill the rest. data is not kept. At most MaxTensor bytes.
// The value outlives the process when Put returns, and a power cut after the
// next Sync or Close.
func (s *Store) Put(ctx context.Context, ref Ref, data []byte) error {
	if len(data) > MaxTensor {
		return fmt.Errorf("put %s into cache %s: %d bytes, at most %d fit one entry", ref, s.dir, len(data), MaxTensor)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	key, info := tensorKey(ref.Key), infoKey(ref.Key)
	err := s.write(
		entry{key, frameTensor(key, ref, data)},
		entry{info, frameInfo(info, Entry{Ref: ref, Bytes: int64(len(data)), Used: time.Now()})})
	if err != nil {
		return fmt.Errorf("put %s into cache %s: %w", ref, s.dir, err)
	}
	s.vouch(ref.Key)
	return nil
}

// Get returns the bytes of a tensor, in dst's memory where they fit. The error
// is ErrNotFound, or ErrCorrupt for an entry that is damaged or is not of the
// type and shape that ref says.
func (s *Store) Get(ctx context.Context, ref Ref, dst []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err := s.tensor(ref, func(payload []byte) { dst = append(dst[:0], payload...) })
	if err != nil {
		return nil, err
	}
	s.touch(ref.Key)
	return dst, nil
}

// Has says whether a tensor can be had. Where the folder's files may have
// changed since they were last closed (after a crash, or touched from outside)
// it reads the tensor and checks it, so ask from several goroutines; else it
// costs microseconds. A damaged tensor is named in the log and dropped.
func (s *Store) Has(ctx context.Context, ref Ref) bool {
	if ctx.Err() != nil {
		return false
	}
	if s.isUnchecked(ref.Key) {
		if s.tensor(ref, func([]byte) {}) != nil {
			return false
		}
	} else if !s.exists(tensorKey(ref.Key)) {
		return false
	}
	s.touch(ref.Key)
	return true
}

// tensor checks the tensor of ref and calls fn with its payload, which is valid
// during the call. A damaged one is dropped.
func (s *Store) tensor(ref Ref, fn func(payload []byte)) error {
	key := tensorKey(ref.Key)
	err := s.read(key, func(frame []byte) error {
		body, err := openFrame(key, frame)
		if err != nil {
			return err
		}
		stored, payload, err := parseHeader(body)
		if err != nil {
			return err
		}
		if ref.DType != "" && !stored.matches(ref) {
			return fmt.Errorf("entry is %s%v", stored.DType, stored.Shape)
		}
		fn(payload)
		return nil
	})
	if err == nil {
		s.vouch(ref.Key)
		return nil
	}
	if isGone(err) {
		return fmt.Errorf("%s: %w", ref, err)
	}
	s.drop(ref, err)
	return fmt.Errorf("%s: %w: %w", ref, ErrCorrupt, err)
}

// isGone says whether an error is no fault of the entry.
func isGone(err error) bool { return errors.Is(err, ErrNotFound) || errors.Is(err, ErrClosed) }

// matches says whether a stored tensor has the type and shape that a ref says.
func (stored Ref) matches(ref Ref) bool {
	if stored.DType != ref.DType || len(stored.Shape) != len(ref.Shape) {
		return false
	}
	for i, n := range ref.Shape {
		if stored.Shape[i] != n {
			return false
		}
	}
	return true
}

// drop removes a damaged tensor and says so.
func (s *Store) drop(ref Ref, cause error) {
	s.log.Warn("tensor is damaged in the cache: dropped, it will be made again",
		"tensor", ref.String(), "key", ref.Key.String(), "cache", s.dir, "cause", cause)
	err := s.update(func(txn *badger.Txn) error {
		if err := txn.Set([]byte{tagDamage}, frameRecord([]byte{tagDamage}, nil)); err != nil {
			return err
		}
		if err := txn.Delete(infoKey(ref.Key)); err != nil {
			return err
		}
		return txn.Delete(tensorKey(ref.Key))
	})
	if err != nil && !errors.Is(err, ErrClosed) {
		s.log.Error("damaged tensor cannot be dropped", "key", ref.Key.String(), "error", err)
	}
}

// read calls fn with an entry's frame, which is valid during the call.
func (s *Store) read(key []byte, fn func(frame []byte) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return ErrClosed
	}
	return readEntry(s.db, key, fn)
}

// exists looks for a key without reading its value.
func (s *Store) exists(key []byte) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return false
	}
	return s.db.View(func(txn *badger.Txn) error {
		_, err := txn.Get(key)
		return err
	}) == nil
}

// entry is a key with its framed value.
type entry struct{ key, frame []byte }

// write stores entries together, if the disk has room for them.
func (s *Store) write(entries ...entry) error {
	var size int64
	for _, e := range entries {
		size += int64(len(e.frame))
	}
	release, err := s.room.reserve(s.dir, size)
	if err != nil {
		return err
	}
	defer release()
	return s.update(func(txn *badger.Txn) error {
		for _, e := range entries {
			if err := txn.Set(e.key, e.frame); err != nil {
				return err
			}
		}
		return nil
	})
}

// remove deletes an entry.
func (s *Store) remove(key []byte) error {
	return s.update(func(txn *badger.Txn) error { return txn.Delete(key) })
}

// update runs a small transaction.
func (s *Store) update(fn func(txn *badger.Txn) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return ErrClosed
	}
	s.wrote.Store(true)
	return s.db.Update(fn)
}

func tensorKey(k Key) []byte { return append([]byte{tagTensor}, k[:]...) }
