package cache

import (
	"errors"
	"fmt"
	"io"
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
	names, err := filepath.Glob(filepath.Join(dir, "*.sst"))
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
	names, err := filepath.Glob(filepath.Join(dir, "*.vlog"))
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
