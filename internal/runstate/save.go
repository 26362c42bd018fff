package runstate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/shirou/gopsutil/v4/disk"

	"longship/cache/atomicfile"
	"longship/internal/lorafile"
	"longship/stages/port"
)

// ErrNewer: a file was written by a newer version of the program.
var ErrNewer = errors.New("written by a newer version")

// SaveOptions say how a checkpoint is saved.
type SaveOptions struct {
	Files []AdapterFile // at least one, each of another series
	Final bool          // it is the run's last step
}

// AdapterFile says how a step's adapter file is written, and how many older
// ones of its series stay.
type AdapterFile struct {
	Series string // "" for the files that have the run's name alone
	Layout string // lorafile.ComfyUI or lorafile.Diffusers
	DType  string // of the numbers
	Keep   int    // numbered files to keep; 0 keeps all
}

// Saved says what a save has done.
type Saved struct {
	Adapters []string // paths of the adapter files, in the order of SaveOptions.Files
	State    string   // path of the state file
	Bytes    int64    // of all
	Removed  []string // older files that were removed
	Left     error    // why some that are too old could not be removed; the next save tries again
}

// Save writes a checkpoint: the adapter files, then the state that commits
// them, and only then removes what is too old. Where it fails the files of this
// step are removed and the checkpoints before it stay. It needs no memory beyond
// one tensor's.
func (f Folder) Save(ctx context.Context, opt SaveOptions, st *port.State) (Saved, error) {
	saved, err := f.save(ctx, opt, st)
	if err != nil {
		return Saved{}, fmt.Errorf("save step %d of run %s: %w", st.Step, f.Name, f.advise(err))
	}
	return saved, nil
}

func (f Folder) save(ctx context.Context, opt SaveOptions, st *port.State) (saved Saved, err error) {
	if err := os.MkdirAll(f.stateDir(), 0o755); err != nil {
		return saved, err
	}
	if err := f.sweep(opt.Files); err != nil {
		return saved, err
	}
	if err := f.room(opt.Files, st); err != nil {
		return saved, err
	}
	saved.State = f.statePath(st.Step)
	files, err := f.commit(ctx, opt, st)
	if err != nil {
		return saved, err
	}
	for _, file := range files {
		saved.Adapters = append(saved.Adapters, filepath.Join(f.Dir, file.Name))
		if !opt.Final {
			continue
		}
		if err := f.removeTwins(f.series(file.Series), file.Digest); err != nil {
			return saved, err
		}
	}
	for _, path := range append([]string{saved.State}, saved.Adapters...) {
		info, err := os.Stat(path)
		if err != nil {
			return saved, err
		}
		saved.Bytes += info.Size()
	}
	saved.Removed, saved.Left = f.rotate(opt.Files, st.Step)
	return saved, nil
}

// commit writes the adapter files and the state that commits them; where it
// fails no file of this step stays.
func (f Folder) commit(ctx context.Context, opt SaveOptions, st *port.State) (files []savedFile, err error) {
	defer func() {
		for _, file := range files {
			if err != nil {
				err = errors.Join(err, os.Remove(filepath.Join(f.Dir, file.Name)))
			}
		}
	}()
	for _, file := range opt.Files {
		s := f.series(file.Series)
		path := s.numbered(st.Step)
		if opt.Final {
			path = s.final()
			if err = f.retireFinal(s, st.Step); err != nil {
				return files, err
			}
		}
		saved := savedFile{Series: file.Series, Name: filepath.Base(path)}
		how := lorafile.Options{Layout: file.Layout, DType: file.DType, Name: s.name}
		err = atomicfile.Write(path, func(w *os.File) error {
			saved.Digest, err = lorafile.Write(ctx, w, how, st)
			return err
		})
		if err != nil {
			return files, err
		}
		files = append(files, saved)
	}
	h := head{Version: formatVersion, Step: st.Step, Final: opt.Final, Files: files,
		Adapter: st.Adapter, Counters: st.Counters, Settings: st.Settings, Dataset: st.Dataset}
	err = atomicfile.Write(f.statePath(st.Step), func(w *os.File) error { return writeState(ctx, w, h, st) })
	return files, err
}

// sweep removes what a process that died left half written.
func (f Folder) sweep(files []AdapterFile) error {
	all, err := f.known(files...)
	if err != nil {
		return err
	}
	partials, err := f.partials(all)
	for _, p := range partials {
		err = errors.Join(err, os.Remove(p))
	}
	return err
}

// errNoRoom: the disk has too little room for a checkpoint.
var errNoRoom = errors.New("too little disk space")

// room finds out beforehand whether the disk has room for all files.
func (f Folder) room(files []AdapterFile, st *port.State) error {
	var need int64
	for _, file := range files {
		n, err := lorafile.Size(lorafile.Options{Layout: file.Layout, DType: file.DType}, st)
		if err != nil {
			return err
		}
		need += n
	}
	for _, n := range tensorsOf(st) {
		need += n.t.Bytes() + 200
	}
	use, err := disk.Usage(f.Dir)
	if err != nil {
		return fmt.Errorf("free space of %s: %w", f.Dir, err)
	}
	if use.Free < uint64(need) {
		return fmt.Errorf("%w: %d bytes are needed and %d are free", errNoRoom, need, use.Free)
	}
	return nil
}

// advise says what to do about an error, where that is known.
func (f Folder) advise(err error) error {
	if !errors.Is(err, errNoRoom) && !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	last := "there is no earlier checkpoint"
	if found, _ := steps(f.stateDir(), f.stepOfState); len(found) > 0 {
		last = fmt.Sprintf("the checkpoint of step %d stays", found[0])
	}
	return fmt.Errorf("%w in %s; %s; free some space there, or lower checkpoint.keep, and run the same command again to go on from it", err, f.Dir, last)
}

// retireFinal makes way for a new final adapter: one of another step gets its
// numbered name, one that belongs to no state a name of its own.
func (f Folder) retireFinal(s series, step int) error {
	if _, err := os.Stat(s.final()); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	owner, err := f.finalOwner(s)
	if err != nil || owner == step {
		return err
	}
	if owner >= 0 {
		return os.Rename(s.final(), s.numbered(owner))
	}
	for n := 1; ; n++ {
		stray := filepath.Join(f.Dir, s.name+previousMark+strconv.Itoa(n)+adapterExt)
		if _, err := os.Lstat(stray); errors.Is(err, os.ErrNotExist) {
			return os.Rename(s.final(), stray)
		}
	}
}

// removeTwins removes what once made way for a final adapter of the series and
// has the bytes of the one just saved: processes died between it and its state,
// perhaps more than one.
func (f Folder) removeTwins(s series, saved lorafile.Digest) error {
	entries, err := os.ReadDir(f.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), s.name+previousMark)
		if !ok {
			continue
		}
		if number, ok = strings.CutSuffix(number, adapterExt); !ok {
			continue
		}
		if _, err := strconv.ParseUint(number, 10, 32); err != nil || !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(f.Dir, e.Name())
		if d, err := lorafile.DigestFile(path); err != nil {
			return err
		} else if d != saved {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// finalOwner returns the step whose state says that the final adapter of a
// series is its own, -1 if none does.
func (f Folder) finalOwner(s series) (int, error) {
	found, err := steps(f.stateDir(), f.stepOfState)
	if err != nil {
		return -1, err
	}
	for _, step := range found {
		h, err := headOf(f.statePath(step))
		if err != nil {
			continue
		}
		for _, file := range h.Files {
			if path, err := f.find(file, step); err == nil && path == s.final() {
				return step, nil
			}
		}
	}
	return -1, nil
}
