package runstate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/shirou/gopsutil/v4/disk"

	"longship/cache/atomicfile"
	"longship/internal/lorafile"
	"longship/stages/port"
)

// KeepStates is how many states are kept: the newest, and one before it in case
// the newest is damaged. A state is several times as large as its adapter file.
const KeepStates = 2

// ErrNewer: a file was written by a newer version of the program.
var ErrNewer = errors.New("written by a newer version")

// SaveOptions say how a checkpoint is saved.
type SaveOptions struct {
	Layout string // lorafile.ComfyUI or lorafile.Diffusers
	DType  string // of the adapter file
	Keep   int    // numbered adapter files to keep; 0 keeps all
	Final  bool   // it is the run's last step
}

// Saved says what a save has done.
type Saved struct {
	Adapter string   // path of the adapter file
	State   string   // path of the state file
	Bytes   int64    // of both
	Removed []string // older files that were removed
}

// Save writes a checkpoint: the adapter file, then the state that commits it,
// and only then removes what is too old. Where it fails the files of this step
// are removed and the checkpoints before it stay. It needs no memory beyond one
// tensor's.
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
	if err := f.sweep(); err != nil {
		return saved, err
	}
	name := f.adapterName(st.Step)
	if opt.Final {
		name = f.finalName()
	}
	if old, err := headOf(f.statePath(st.Step)); err == nil && old.File == name && f.whole(old) == nil {
		return f.saved(name, st.Step)
	}
	file := lorafile.Options{Layout: opt.Layout, DType: opt.DType, Name: f.Name}
	if err := f.room(file, st); err != nil {
		return saved, err
	}
	stray := ""
	if opt.Final {
		if stray, err = f.retireFinal(st.Step); err != nil {
			return saved, err
		}
	}
	h := head{Version: formatVersion, Step: st.Step, Final: opt.Final, File: name,
		Adapter: st.Adapter, Counters: st.Counters, Settings: st.Settings, Dataset: st.Dataset}
	err = atomicfile.Write(f.path(name), func(w *os.File) error {
		h.Digest, err = lorafile.Write(ctx, w, file, st)
		return err
	})
	if err != nil {
		return saved, err
	}
	err = atomicfile.Write(f.statePath(st.Step), func(w *os.File) error { return writeState(ctx, w, h, st) })
	if err != nil {
		return saved, errors.Join(err, os.Remove(f.path(name)))
	}
	if saved, err = f.saved(name, st.Step); err != nil {
		return saved, err
	}
	if err := removeTwin(stray, h.Digest); err != nil {
		return saved, err
	}
	saved.Removed, err = f.rotate(opt.Keep)
	return saved, err
}

// saved describes a pair that is on the disk.
func (f Folder) saved(adapter string, step int) (Saved, error) {
	saved := Saved{Adapter: f.path(adapter), State: f.statePath(step)}
	for _, path := range []string{saved.Adapter, saved.State} {
		info, err := os.Stat(path)
		if err != nil {
			return saved, err
		}
		saved.Bytes += info.Size()
	}
	return saved, nil
}

// sweep removes what a process that died left half written.
func (f Folder) sweep() error {
	partials, err := f.partials()
	for _, p := range partials {
		err = errors.Join(err, os.Remove(p))
	}
	return err
}

// errNoRoom: the disk has too little room for a checkpoint.
var errNoRoom = errors.New("too little disk space")

// room finds out beforehand whether the disk has room for both files.
func (f Folder) room(opt lorafile.Options, st *port.State) error {
	need, err := lorafile.Size(opt, st)
	if err != nil {
		return err
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
// numbered name, one that belongs to no state a name of its own, stray.
func (f Folder) retireFinal(step int) (stray string, err error) {
	final := f.path(f.finalName())
	if _, err := os.Stat(final); errors.Is(err, os.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	owner, err := f.finalOwner()
	if err != nil || owner == step {
		return "", err
	}
	if owner >= 0 {
		return "", os.Rename(final, f.path(f.adapterName(owner)))
	}
	for n := 1; ; n++ {
		stray = f.path(fmt.Sprintf(previousFmt, f.Name, n))
		if _, err := os.Lstat(stray); errors.Is(err, os.ErrNotExist) {
			return stray, os.Rename(final, stray)
		}
	}
}

// removeTwin removes a stray adapter, "" for none, that has the bytes of the one
// just saved: a process died between it and its state.
func removeTwin(stray string, saved lorafile.Digest) error {
	if stray == "" {
		return nil
	}
	if d, err := lorafile.DigestFile(stray); err != nil || d != saved {
		return err
	}
	return os.Remove(stray)
}

// finalOwner returns the step whose state says that the final adapter is its
// own, -1 if none does.
func (f Folder) finalOwner() (int, error) {
	found, err := steps(f.stateDir(), f.stepOfState)
	if err != nil {
		return -1, err
	}
	for _, step := range found {
		h, err := headOf(f.statePath(step))
		if err == nil && h.File == f.finalName() && f.whole(h) == nil {
			return step, nil
		}
	}
	return -1, nil
}

// rotate removes what is older than the newest `keep` adapter files, and than
// the newest KeepStates states (fewer where fewer adapter files are kept). Only
// files of exactly this run's names are touched, never the final one.
func (f Folder) rotate(keep int) (removed []string, err error) {
	adapters, err := steps(f.Dir, f.stepOfAdapter)
	if err != nil {
		return nil, err
	}
	states, err := steps(f.stateDir(), f.stepOfState)
	if err != nil {
		return nil, err
	}
	keepStates := KeepStates
	var old []string
	if keep > 0 {
		keepStates = min(keep, KeepStates)
		for _, step := range adapters[min(keep, len(adapters)):] {
			old = append(old, f.path(f.adapterName(step)))
		}
	}
	for _, step := range states[min(keepStates, len(states)):] {
		old = append(old, f.statePath(step))
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return removed, err
		}
		removed = append(removed, filepath.Base(path))
	}
	return removed, nil
}
