package cache

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/hashicorp/go-hclog"

	"longship/cache/folderlock"
)

// Options say how a folder is opened.
type Options struct {
	Wait     bool         // wait for a folder that another process has, until ctx is done
	Log      hclog.Logger // nil: no log
	Run      string       // what others are told of who holds the folder: the run's name
	Rehash   bool         // File ignores what it remembers
	Existing bool         // an error if there is no cache in the folder
}

const (
	// formatVersion is raised when the meaning of entries changes. An older
	// folder is set aside and made anew; a newer one is refused.
	formatVersion = 1

	// MaxTensor is the largest tensor, in bytes.
	MaxTensor = valueLogSize - 1<<20

	valueLogSize = 256 << 20 // bytes a value-log file; also the limit of one value
	memTableSize = 8 << 20   // bytes; only small records and pointers go through it
	valueInLog   = 4 << 10   // values from this size on go to the value log

	badgerName = "badger" // the folder inside the cache folder that is Badger's
)

// Open opens the cache in dir, which is made if it is missing. The error is a
// *BusyError while another process has it, ErrOpen if this process has,
// ErrNewer if a newer version wrote it. A folder that Badger cannot open is set
// aside as badger.damaged-N, named in the log, and a new one is begun.
func Open(ctx context.Context, dir string, opt Options) (*Store, error) {
	log := opt.Log
	if log == nil {
		log = hclog.NewNullLogger()
	}
	dir, err := resolve(dir, opt.Existing)
	if err != nil {
		return nil, err
	}
	lock, err := lockFolder(ctx, dir, opt, log)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, log: log, lock: lock, rehash: opt.Rehash, used: map[Key]struct{}{}}
	if err := s.open(); err != nil {
		lock.Release()
		return nil, fmt.Errorf("open cache %s: %w", dir, err)
	}
	return s, nil
}

// lockFolder takes the folder, waits for it if told to, or says who has it.
func lockFolder(ctx context.Context, dir string, opt Options, log hclog.Logger) (*folderlock.Lock, error) {
	how := folderlock.Options{What: "cache", Way: "wait for it with --wait, or use another folder", Run: opt.Run}
	if opt.Wait {
		how.Wait = func(busy *BusyError) { log.Info("waiting for the cache", "cause", busy) }
	}
	return folderlock.Take(ctx, dir, how)
}

// resolve makes dir, unless it must exist, and returns its real path.
func resolve(dir string, existing bool) (string, error) {
	if existing {
		if _, err := os.Stat(filepath.Join(dir, badgerName)); err != nil {
			return "", fmt.Errorf("there is no cache in %s: %w", dir, err)
		}
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cache folder: %w", err)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("cache folder: %w", err)
	}
	return filepath.EvalSymlinks(abs)
}

// open opens Badger, once more in a fresh folder if the old one is damaged or
// of an older format.
func (s *Store) open() error {
	err := s.openWhole()
	if err == nil || errors.Is(err, ErrNewer) || isOutside(err) {
		return err
	}
	aside, renameErr := s.setAside()
	if renameErr != nil {
		return fmt.Errorf("%w; and it cannot be set aside: %w", err, renameErr)
	}
	s.log.Warn("cache cannot be used: set aside, a new one is begun and filled again",
		"cache", s.dir, "aside", aside, "cause", err)
	return s.openWhole()
}

// openWhole opens a folder that is whole: as it was sealed, or at least as
// Badger and the version entry accept it.
func (s *Store) openWhole() error {
	if err := s.room.forOpening(s.dir); err != nil {
		return err
	}
	intact, unchecked, err := s.checkSeal()
	if err != nil {
		return err
	}
	if err := s.breakSeal(); err != nil {
		return err
	}
	if err := mendValueLogs(s.badgerDir()); err != nil {
		return err
	}
	db, err := openBadger(s.badgerDir(), s.log)
	if err != nil {
		return err
	}
	s.db = db
	if err := s.checkVersion(); err != nil {
		s.db = nil
		return errors.Join(err, db.Close())
	}
	s.unchecked = unchecked
	if !intact {
		s.distrust()
	}
	return nil
}

func (s *Store) badgerDir() string { return filepath.Join(s.dir, badgerName) }

// isOutside says whether an error comes from the machine, not from the
// folder's contents: setting the folder aside would not help.
func isOutside(err error) bool {
	for _, outside := range []error{fs.ErrPermission, syscall.ENOSPC, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EROFS, ErrFull} {
		if errors.Is(err, outside) {
			return true
		}
	}
	return false
}

// openBadger opens Badger's folder; a panic over damaged files becomes an error.
func openBadger(dir string, log hclog.Logger) (db *badger.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, fmt.Errorf("badger: %v", p)
		}
	}()
	return badger.Open(badger.DefaultOptions(dir).
		WithLogger(badgerLog{log}).
		WithValueLogFileSize(valueLogSize).
		WithValueThreshold(valueInLog).
		WithMemTableSize(memTableSize).
		WithNumMemtables(2).
		WithNumCompactors(2).
		WithCompression(options.None). // tensors do not compress
		WithBlockCacheSize(0).         // tables are small and mapped
		WithChecksumVerificationMode(options.OnTableRead).
		WithVerifyValueChecksum(true). // before Badger trusts an entry's header
		WithDetectConflicts(false).
		WithCompactL0OnClose(true). // what compaction drops, GC can give back
		WithMetricsEnabled(false))
}

// checkVersion reads the format's version, or writes it into a new folder.
func (s *Store) checkVersion() error {
	key := []byte{tagVersion}
	var version uint64
	err := s.read(key, func(frame []byte) error {
		body, err := openFrame(key, frame)
		if err != nil {
			return err
		}
		r := reader{p: body}
		version = r.number()
		return nil
	})
	switch {
	case errors.Is(err, ErrNotFound):
		if !s.empty() {
			return errors.New("version entry is missing")
		}
		return s.write(entry{key, frameRecord(key, binary.AppendUvarint(nil, formatVersion))})
	case err != nil:
		return fmt.Errorf("version entry: %w", err)
	case version > formatVersion:
		return fmt.Errorf("%w: %d, this program reads %d; use another folder", ErrNewer, version, formatVersion)
	case version < formatVersion:
		return fmt.Errorf("format %d is older than %d", version, formatVersion)
	}
	return nil
}

func (s *Store) empty() bool {
	empty := true
	eachKey(s.db, nil, func([]byte) bool {
		empty = false
		return false
	})
	return empty
}

// setAside renames Badger's folder so that nothing of it is lost, and returns
// its new name.
func (s *Store) setAside() (string, error) {
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s.damaged-%d", s.badgerDir(), n)
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			return aside, os.Rename(s.badgerDir(), aside)
		}
	}
}

// badgerLog gives Badger's messages to hclog. What it says of unreadable
// values the store says better, with the tensor's name.
type badgerLog struct{ log hclog.Logger }

func (b badgerLog) Errorf(format string, args ...any) {
	if strings.HasPrefix(format, "Unable to read") || strings.HasPrefix(format, "Key:") {
		b.log.Trace("badger: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
		return
	}
	b.log.Warn("badger: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}
func (b badgerLog) Warningf(format string, args ...any) {
	b.log.Debug("badger: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}
func (b badgerLog) Infof(format string, args ...any) {
	b.log.Trace("badger: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}
func (b badgerLog) Debugf(format string, args ...any) {
	b.log.Trace("badger: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}
