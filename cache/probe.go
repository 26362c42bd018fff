package cache

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/ristretto/v2/z"
)

// probeTables reads every table of a folder that was not sealed. Badger opens
// its tables on goroutines of its own, where a damaged one ends the process;
// here it becomes an error.
func probeTables(dir string) error {
	names, err := filesIn(dir, func(name string) bool { return filepath.Ext(name) == ".sst" })
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := probeTable(name); err != nil {
			return fmt.Errorf("file %s is damaged: %w", filepath.Base(name), err)
		}
	}
	return nil
}

// mendValueLogs puts the heads of the value logs right. They name the key that
// a log is encrypted with; ours are not, so any other name than 0 is damage,
// over which Badger would refuse the folder.
func mendValueLogs(dir string) error {
	names, err := filesIn(dir, func(name string) bool { return filepath.Ext(name) == ".vlog" })
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := mendValueLog(name); err != nil {
			return err
		}
	}
	return nil
}

// filesIn returns the paths of the entries of a folder whose names fit; none
// where there is no folder. (filepath.Glob would read its patterns into dir.)
func filesIn(dir string, fits func(name string) bool) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if fits(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, err
}

func mendValueLog(name string) error {
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	var head, plain [8]byte
	if _, err := file.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if head == plain {
		return nil
	}
	_, err = file.WriteAt(plain[:], 0)
	return err
}

func probeTable(name string) (err error) {
	file, err := z.OpenMmapFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			file.Close(-1)
			err = errors.New("its index cannot be read")
		}
	}()
	t, err := table.OpenTable(file, table.Options{ChkMode: options.OnTableRead, Compression: options.None})
	if err != nil {
		return err
	}
	return t.Close(-1)
}
