package runstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"longship/cache/atomicfile"
	"longship/cache/folderlock"
)

// Folder is where a run's files are.
type Folder struct {
	Dir  string // <output>/<name>
	Name string // of the run
}

// In returns the folder of a run in the output folder.
func In(output, name string) Folder {
	return Folder{Dir: filepath.Join(output, name), Name: name}
}

// IsRun says whether a folder is a run's, at work or moved aside.
func IsRun(dir string) bool {
	entries, err := os.ReadDir(filepath.Join(dir, stateDir))
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == folderlock.LockName || filepath.Ext(e.Name()) == stateExt
	})
}

const (
	stateDir     = "state"
	adapterExt   = ".safetensors"
	stateExt     = ".state"
	previousMark = ".previous-" // and a number: of what is in the way of a final adapter
)

func (f Folder) stateDir() string { return filepath.Join(f.Dir, stateDir) }

func (f Folder) statePath(step int) string {
	return filepath.Join(f.stateDir(), numbered(f.Name, step, stateExt))
}
func (f Folder) stepOfState(file string) int { return stepIn(f.Name, file, stateExt) }

// steps lists the steps that a folder has files of, newest first.
func steps(dir string, stepOf func(name string) int) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []int
	for _, e := range entries {
		if step := stepOf(e.Name()); step >= 0 && e.Type().IsRegular() {
			found = append(found, step)
		}
	}
	slices.SortFunc(found, func(a, b int) int { return cmp.Compare(b, a) })
	return found, nil
}

// known returns the run's series: its first, those that its states name, and more.
func (f Folder) known(more ...AdapterFile) ([]series, error) {
	found, err := steps(f.stateDir(), f.stepOfState)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{"": true}
	for _, step := range found {
		if h, err := headOf(f.statePath(step)); err == nil {
			for _, file := range h.Files {
				names[file.Series] = true
			}
		}
	}
	for _, file := range more {
		names[file.Series] = true
	}
	var all []series
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, f.series(name))
	}
	return all, nil
}

// partials lists the files of this run that were being written when a process died.
func (f Folder) partials(all []series) (paths []string, err error) {
	isAdapter := func(file string) bool {
		return slices.ContainsFunc(all, func(s series) bool { return s.owns(file) })
	}
	isState := func(file string) bool { return f.stepOfState(file) >= 0 }
	for dir, ours := range map[string]func(string) bool{f.Dir: isAdapter, f.stateDir(): isState} {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), atomicfile.Partial); ok && ours(name) {
				paths = append(paths, filepath.Join(dir, e.Name()))
			}
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// Lock takes the run for this process, making its folder. Of two runs of one
// name and folder the second gets a *folderlock.BusyError that names the first,
// or, where wait is not nil, has it called with that and waits.
func (f Folder) Lock(ctx context.Context, wait func(*folderlock.BusyError)) (*folderlock.Lock, error) {
	if err := os.MkdirAll(f.stateDir(), 0o755); err != nil {
		return nil, fmt.Errorf("output folder: %w", err)
	}
	dir, err := filepath.EvalSymlinks(f.stateDir())
	if err != nil {
		return nil, fmt.Errorf("output folder: %w", err)
	}
	return folderlock.Take(ctx, dir, folderlock.Options{
		What: "the output of run " + f.Name + " in", Run: f.Name, Wait: wait,
		Way: "wait for it with --wait, or give this run another name",
	})
}

// Restart moves everything that the run has written to a folder beside its own,
// and returns that folder; "" where there was nothing. The lock must be held.
func (f Folder) Restart() (aside string, err error) {
	moves, err := f.contents()
	if err != nil || len(moves) == 0 {
		return "", err
	}
	real, err := filepath.EvalSymlinks(f.Dir) // beside it there, a move is a rename
	if err != nil {
		return "", fmt.Errorf("move the old output aside: %w", err)
	}
	for n := 1; ; n++ {
		aside = fmt.Sprintf("%s.old-%d", real, n)
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err := os.MkdirAll(filepath.Join(aside, stateDir), 0o755); err != nil {
		return "", fmt.Errorf("move the old output aside: %w", err)
	}
	for _, rel := range moves {
		if err := os.Rename(filepath.Join(f.Dir, rel), filepath.Join(aside, rel)); err != nil {
			return "", fmt.Errorf("move the old output aside: %w", err)
		}
	}
	return aside, nil
}

// contents lists what Restart moves: all but the lock.
func (f Folder) contents() (rels []string, err error) {
	for _, sub := range []string{"", stateDir} {
		entries, err := os.ReadDir(filepath.Join(f.Dir, sub))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			locked := sub == stateDir && (e.Name() == folderlock.LockName || e.Name() == folderlock.HolderName)
			if !locked && (sub != "" || e.Name() != stateDir) {
				rels = append(rels, filepath.Join(sub, e.Name()))
			}
		}
	}
	return rels, nil
}
