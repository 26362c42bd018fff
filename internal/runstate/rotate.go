package runstate

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// KeepStates is how many states are kept: the newest, and one before it in case
// the newest is damaged. A state is several times as large as its adapter file.
const KeepStates = 2

// rotate removes, of the files up to a step that has just been saved, those
// before the newest `keep` of each series, and before the newest KeepStates
// states (fewer where fewer adapter files are kept). Files of later steps, which
// a run that went on from an older checkpoint has left behind, count for nothing
// and stay. Only files of exactly this run's names are touched, never a final one.
func (f Folder) rotate(files []AdapterFile, step int) (removed []string, err error) {
	var old []string
	keepStates := KeepStates
	for _, file := range files {
		if file.Keep == 0 {
			continue
		}
		keepStates = min(keepStates, file.Keep)
		s := f.series(file.Series)
		adapters, err := stepsUpTo(step, f.Dir, s.stepOf)
		if err != nil {
			return nil, err
		}
		for _, step := range adapters[min(file.Keep, len(adapters)):] {
			old = append(old, s.numbered(step))
		}
	}
	states, err := stepsUpTo(step, f.stateDir(), f.stepOfState)
	if err != nil {
		return nil, err
	}
	for _, step := range states[min(keepStates, len(states)):] {
		old = append(old, f.statePath(step))
	}
	for _, path := range old {
		if e := os.Remove(path); e != nil {
			err = errors.Join(err, e)
			continue
		}
		removed = append(removed, filepath.Base(path))
	}
	return removed, err
}

// stepsUpTo lists the steps, up to one, that a folder has files of, newest first.
func stepsUpTo(last int, dir string, stepOf func(name string) int) ([]int, error) {
	found, err := steps(dir, stepOf)
	return slices.DeleteFunc(found, func(step int) bool { return step > last }), err
}
