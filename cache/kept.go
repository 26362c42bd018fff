package cache

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"longship/cache/atomicfile"
)

// keptName is the folder of kept files in a cache's folder.
const keptName = "kept"

// KeptFile is a file that a stage keeps in a cache's folder beside the tensors,
// because it is too large for one entry or is mapped.
type KeptFile struct {
	Path  string
	Kind  string // by whom it is kept: quantised
	Bytes int64
	Used  time.Time // when it was made or last used
}

// Kept returns the path of a kept file and makes its folder. The stage writes it
// (whole, as atomicfile does), checks it, and calls Keep when it uses it.
func (s *Store) Kept(kind, name string) (path string, err error) {
	dir := filepath.Join(s.dir, keptName, kind)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("folder of kept files: %w", err)
	}
	return filepath.Join(dir, name), nil
}

// Keep marks a kept file as used now: GC goes by it.
func (s *Store) Keep(path string) error {
	now := time.Now()
	return os.Chtimes(path, now, now)
}

// KeptFiles lists the kept files, those half written by killed processes
// included, by path.
func (s *Store) KeptFiles() ([]KeptFile, error) {
	var files []KeptFile
	root := filepath.Join(s.dir, keptName)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		kind, err := filepath.Rel(root, filepath.Dir(path))
		files = append(files, KeptFile{Path: path, Kind: filepath.ToSlash(kind), Bytes: info.Size(), Used: info.ModTime()})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("kept files of cache %s: %w", s.dir, err)
	}
	return files, nil
}

// removeKept removes the kept files that were not used since, and those that are
// half written: the store's lock is held, so nobody is writing them.
func (s *Store) removeKept(opt GCOptions, report *GCReport) error {
	files, err := s.KeptFiles()
	if err != nil {
		return err
	}
	for _, f := range files {
		report.Before += f.Bytes
		old := !opt.UnusedSince.IsZero() && f.Used.Before(opt.UnusedSince)
		if !old && !strings.HasSuffix(f.Path, atomicfile.Partial) {
			report.After += f.Bytes
			continue
		}
		if err := os.Remove(f.Path); err != nil {
			return fmt.Errorf("collect cache %s: %w", s.dir, err)
		}
		report.Kept = append(report.Kept, f)
	}
	return nil
}
