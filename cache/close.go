package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// Close brings everything to the disk, seals the folder and gives it free. It
// may be called twice. Operations in flight end first; later ones get ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return nil
	}
	err := s.flushUsed()
	err = errors.Join(err, s.db.Close())
	s.db = nil
	if err == nil && s.wrote.Load() {
		err = s.settle()
	}
	if err == nil {
		err = s.writeSeal(s.suspect.Load())
	}
	if err = errors.Join(err, s.lock.release()); err != nil {
		return fmt.Errorf("close cache %s: %w", s.dir, err)
	}
	return nil
}

// settle opens and closes Badger once more after a session that wrote. Badger
// cuts its newest value log at the first entry that does not check, so a
// single damaged tensor there would take all behind it along; now an empty one
// is the newest.
func (s *Store) settle() error {
	db, err := openBadger(s.badgerDir(), s.log)
	if err != nil {
		return err
	}
	return db.Close()
}

// flushUsed writes when the tensors used since the last flush were used.
func (s *Store) flushUsed() error {
	s.usedMu.Lock()
	used := s.used
	s.used = map[Key]struct{}{}
	s.usedMu.Unlock()
	if len(used) == 0 {
		return nil
	}
	now := binary.AppendUvarint(nil, uint64(time.Now().Unix()))
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	for k := range used {
		key := usedKey(k)
		if err := batch.Set(key, frameRecord(key, now)); err != nil {
			return err
		}
	}
	return batch.Flush()
}

func usedKey(k Key) []byte { return append([]byte{tagUsed}, k[:]...) }
