package cache

import (
	"errors"
	"fmt"
)

// Close brings everything to the disk, seals the folder and gives it free. It
// may be called twice. Operations in flight end first; later ones get ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return nil
	}
	err := errors.Join(s.closeBadger(), s.lock.Release())
	s.lock = nil
	if err != nil {
		return fmt.Errorf("close cache %s: %w", s.dir, err)
	}
	return nil
}

// closeBadger closes Badger and seals its folder, if all went well.
func (s *Store) closeBadger() error {
	if s.db == nil {
		return nil
	}
	err := errors.Join(s.flushUsed(), s.db.Close())
	s.db = nil
	if err == nil && s.wrote.Load() {
		err = s.settle()
	}
	if err == nil {
		err = s.writeSeal()
	}
	return err
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
