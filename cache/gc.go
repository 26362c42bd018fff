package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// GCOptions say which tensors and kept files GC removes. With neither set it
// removes none and only gives back what is stale already.
type GCOptions struct {
	UnusedSince time.Time // what was last used before; the zero time: age does not matter
	Unlisted    bool      // tensors that no recorded list refers to
}

// GCReport says what GC removed.
type GCReport struct {
	Tensors int
	Bytes   int64      // of these tensors
	Files   int        // records of files that are gone or have changed
	Facts   int        // facts about contents that no known file has
	Kept    []KeptFile // kept files, those half written included
	Aside   []string   // folders once set aside as damaged
	Damaged []Entry    // tensors found damaged on the way
	Before  int64      // bytes on the disk
	After   int64
}

// GC removes what nobody needs and gives its room back. The store can be used
// afterwards; while GC runs other calls wait.
func (s *Store) GC(ctx context.Context, opt GCOptions) (GCReport, error) {
	var report GCReport
	aside, err := filesIn(s.dir, func(name string) bool { return strings.HasPrefix(name, badgerName+".damaged-") })
	if err != nil {
		return report, err
	}
	for _, dir := range aside {
		report.Before += diskBytes(dir)
		if err := os.RemoveAll(dir); err != nil {
			return report, fmt.Errorf("collect cache %s: %w", s.dir, err)
		}
		report.Aside = append(report.Aside, filepath.Base(dir))
	}
	if err := s.removeKept(opt, &report); err != nil {
		return report, err
	}
	damaged, err := s.collect(ctx, opt, &report)
	if err != nil {
		return report, fmt.Errorf("collect cache %s: %w", s.dir, err)
	}
	if damaged {
		// Badger moves the entries of a value log up to the first that does
		// not check; what lay behind one is lost with its file. Find it now.
		verified, err := s.Verify(ctx, nil)
		report.Damaged = verified.Damaged
		return report, err
	}
	return report, nil
}

// collect removes and compacts with the store to itself. damaged says that a
// damaged tensor was once dropped from it.
func (s *Store) collect(ctx context.Context, opt GCOptions, report *GCReport) (damaged bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return false, ErrClosed
	}
	if err := s.flushUsed(); err != nil {
		return false, err
	}
	stale := s.stale(opt, report)
	if err := ctx.Err(); err != nil {
		return false, err
	}
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	for _, key := range stale {
		if err := batch.Delete(key); err != nil {
			return false, err
		}
	}
	if err := batch.Flush(); err != nil {
		return false, err
	}
	damaged = readEntry(s.db, []byte{tagDamage}, func([]byte) error { return nil }) == nil
	s.wrote.Store(true)

	// Closing compacts the index, which counts what is stale in each value log.
	before, err := s.reopen()
	if err != nil {
		return damaged, err
	}
	report.Before += before
	if err := s.compact(ctx); err != nil {
		return damaged, err
	}
	after, err := s.reopen()
	if err != nil {
		return damaged, err
	}
	report.After += after
	if damaged {
		s.distrust()
	}
	return damaged, nil
}

// reopen closes Badger and opens it again, and returns the bytes that its
// files had between.
func (s *Store) reopen() (bytes int64, err error) {
	err = s.db.Close()
	s.db = nil
	if err != nil {
		return 0, err
	}
	bytes = diskBytes(s.badgerDir())
	s.db, err = openBadger(s.badgerDir(), s.log)
	return bytes, err
}

// compact rewrites the value logs that are stale in some part, those that are
// nearly all stale first, as far as the disk has room for what is moved.
func (s *Store) compact(ctx context.Context) error {
	if err := s.db.Flatten(2); err != nil {
		return err
	}
	for _, ratio := range []float64{0.95, 0.5, 0.1} {
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			release, err := s.room.reserve(s.dir, int64((1-ratio)*valueLogSize))
			if errors.Is(err, ErrFull) {
				s.log.Warn("the disk has too little room to compact the cache further", "cache", s.dir, "cause", err)
				return nil
			}
			if err != nil {
				return err
			}
			err = s.db.RunValueLogGC(ratio)
			release()
			if errors.Is(err, badger.ErrNoRewrite) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// stale lists the keys that can go, and counts them.
func (s *Store) stale(opt GCOptions, report *GCReport) (keys [][]byte) {
	listed := s.listed()
	eachKey(s.db, []byte{tagTensor}, func(key []byte) bool {
		k := Key(key[1:])
		e, _ := readInfo(s.db, k)
		old := !opt.UnusedSince.IsZero() && e.Used.Before(opt.UnusedSince)
		if old || opt.Unlisted && !listed[k] {
			report.Tensors++
			report.Bytes += e.Bytes
			keys = append(keys, key, infoKey(k))
		}
		return true
	})
	contents := map[Key]bool{}
	eachKey(s.db, []byte{tagFile}, func(key []byte) bool {
		known, content := readFile(s.db, key)
		info, err := os.Stat(string(key[1:]))
		if err != nil || stampOf(info) != known {
			report.Files++
			keys = append(keys, key)
		} else {
			contents[content] = true
		}
		return true
	})
	eachKey(s.db, []byte{tagFact}, func(key []byte) bool {
		if content := Key(key[1:33]); !contents[content] && !listed[content] {
			report.Facts++
			keys = append(keys, key)
		}
		return true
	})
	return keys
}

// listed returns every key that a recorded list refers to.
func (s *Store) listed() map[Key]bool {
	keys := map[Key]bool{}
	eachKey(s.db, []byte{tagList}, func(key []byte) bool {
		readEntry(s.db, key, func(frame []byte) error {
			body, err := openFrame(key, frame)
			if err != nil {
				return err
			}
			list, err := parseList(body)
			for _, k := range list.Refs {
				keys[k] = true
			}
			return err
		})
		return true
	})
	return keys
}

// diskBytes returns the sizes of the files in a folder. Files that vanish
// meanwhile count nothing.
func diskBytes(dir string) (n int64) {
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}
