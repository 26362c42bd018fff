package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// Entry is a tensor as List shows it.
type Entry struct {
	Ref   Ref
	Bytes int64     // of the payload
	Used  time.Time // last put or read, to within usedGrain
}

// usedGrain is how old a recorded time of use may be before it is written
// anew, so that a run over known tensors writes next to nothing.
const usedGrain = time.Hour

func infoKey(k Key) []byte { return append([]byte{tagInfo}, k[:]...) }

// frameInfo frames the record that lists a tensor: time used, size, and the
// tensor's header.
func frameInfo(key []byte, e Entry) []byte {
	body := binary.AppendUvarint(nil, uint64(e.Used.Unix()))
	body = binary.AppendUvarint(body, uint64(e.Bytes))
	return frameRecord(key, appendHeader(body, e.Ref))
}

func parseInfo(k Key, body []byte) (e Entry, err error) {
	r := reader{p: body}
	e.Used = time.Unix(int64(r.number()), 0)
	e.Bytes = int64(r.number())
	if r.bad {
		return Entry{}, errors.New("record is cut off")
	}
	e.Ref, _, err = parseHeader(r.p)
	e.Ref.Key = k
	return e, err
}

// readInfo returns what is recorded of a tensor.
func readInfo(db *badger.DB, k Key) (e Entry, err error) {
	key := infoKey(k)
	err = readEntry(db, key, func(frame []byte) error {
		body, err := openFrame(key, frame)
		if err != nil {
			return err
		}
		e, err = parseInfo(k, body)
		return err
	})
	return e, err
}

// touch remembers that a tensor was used.
func (s *Store) touch(k Key) {
	s.trackMu.Lock()
	s.used[k] = struct{}{}
	s.trackMu.Unlock()
}

// isUnchecked says whether a tensor must be read before it is trusted.
func (s *Store) isUnchecked(k Key) bool {
	s.trackMu.Lock()
	defer s.trackMu.Unlock()
	_, ok := s.unchecked[k]
	return ok
}

// vouch notes that a tensor's bytes are known to be whole.
func (s *Store) vouch(k Key) {
	s.trackMu.Lock()
	delete(s.unchecked, k)
	s.trackMu.Unlock()
}

// distrust has every tensor read before it is trusted.
func (s *Store) distrust() {
	unchecked := map[Key]struct{}{}
	eachKey(s.db, []byte{tagTensor}, func(key []byte) bool {
		unchecked[Key(key[1:])] = struct{}{}
		return true
	})
	s.trackMu.Lock()
	s.unchecked = unchecked
	s.trackMu.Unlock()
}

// Sync brings everything put so far to the disk.
func (s *Store) Sync() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return ErrClosed
	}
	if err := errors.Join(s.flushUsed(), s.db.Sync()); err != nil {
		return fmt.Errorf("sync cache %s: %w", s.dir, err)
	}
	return nil
}

// flushUsed writes when the tensors used since the last flush were used.
func (s *Store) flushUsed() error {
	s.trackMu.Lock()
	used := s.used
	s.used = map[Key]struct{}{}
	s.trackMu.Unlock()
	now := time.Now()
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	for k := range used {
		e, err := readInfo(s.db, k)
		if err != nil || now.Sub(e.Used) < usedGrain {
			continue
		}
		e.Used = now
		key := infoKey(k)
		if err := batch.Set(key, frameInfo(key, e)); err != nil {
			return err
		}
	}
	return batch.Flush()
}

// readEntry calls fn with an entry's frame, which is valid during the call.
func readEntry(db *badger.DB, key []byte, fn func(frame []byte) error) error {
	return db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if errors.Is(err, badger.ErrKeyNotFound) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		return item.Value(fn)
	})
}

// eachKey calls fn with every key that begins with prefix, in order, until fn
// returns false. The key is fn's to keep.
func eachKey(db *badger.DB, prefix []byte, fn func(key []byte) bool) {
	db.View(func(txn *badger.Txn) error {
		it := txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			if !fn(it.Item().KeyCopy(nil)) {
				break
			}
		}
		return nil
	})
}
