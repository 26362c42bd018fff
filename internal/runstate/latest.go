package runstate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"longship/internal/lorafile"
	"longship/internal/safetensors"
	"longship/stages/port"
)

// Checkpoint is a whole pair that a run can go on from.
type Checkpoint struct {
	Step     int
	Final    bool // it was the last step of the run that saved it
	Adapter  port.Adapter
	Counters map[string]int64
	Settings []port.Setting
	Dataset  []string

	AdapterPath string
	StatePath   string
}

// Ignored is a file that Latest passed over.
type Ignored struct {
	Path string
	Why  string
}

// Latest returns the newest checkpoint that is whole, nil if there is none, and
// what it passed over to find it. All its files are read and checked against their
// hashes. A state of a newer version of the program is an error: going on from
// an older one would throw its work away.
func (f Folder) Latest(ctx context.Context) (*Checkpoint, []Ignored, error) {
	ignored, err := f.halves()
	if err != nil {
		return nil, nil, err
	}
	found, err := steps(f.stateDir(), f.stepOfState)
	if err != nil {
		return nil, nil, err
	}
	for _, step := range found {
		c, err := f.check(ctx, step)
		switch {
		case err == nil:
			return c, newer(ignored, c.Step), nil
		case errors.Is(err, ErrNewer), ctx.Err() != nil:
			return nil, nil, fmt.Errorf("%s: %w", f.statePath(step), err)
		}
		ignored = append(ignored, Ignored{Path: f.statePath(step), Why: err.Error()})
	}
	return nil, ignored, nil
}

// Peek returns the newest checkpoint as the head of its state tells it, nil if
// there is none. It takes no lock and compares no hash, so Latest may yet pass
// it over.
func (f Folder) Peek() (*Checkpoint, error) {
	found, err := steps(f.stateDir(), f.stepOfState)
	if err != nil {
		return nil, err
	}
	for _, step := range found {
		h, err := headOf(f.statePath(step))
		switch {
		case err == nil:
			return f.checkpoint(h), nil
		case errors.Is(err, ErrNewer):
			return nil, fmt.Errorf("%s: %w", f.statePath(step), err)
		}
	}
	return nil, nil
}

// checkpoint is what the head of a state tells of it.
func (f Folder) checkpoint(h head) *Checkpoint {
	return &Checkpoint{Step: h.Step, Final: h.Final, Adapter: h.Adapter, Counters: h.Counters, Settings: h.Settings,
		Dataset: h.Dataset, AdapterPath: filepath.Join(f.Dir, filepath.Base(h.Files[0].Name)), StatePath: f.statePath(h.Step)}
}

// halves lists adapter files without a state, and files that were being written.
func (f Folder) halves() (ignored []Ignored, err error) {
	all, err := f.known()
	if err != nil {
		return nil, err
	}
	states, err := steps(f.stateDir(), f.stepOfState)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		adapters, err := steps(f.Dir, s.stepOf)
		if err != nil {
			return nil, err
		}
		for _, step := range adapters {
			if !slices.Contains(states, step) {
				ignored = append(ignored, Ignored{Path: s.numbered(step), Why: "it has no state beside it"})
			}
		}
		if _, err := os.Stat(s.final()); err == nil {
			owner, err := f.finalOwner(s)
			if err != nil {
				return nil, err
			}
			if owner < 0 {
				ignored = append(ignored, Ignored{Path: s.final(), Why: "it has no state beside it"})
			}
		}
	}
	partials, err := f.partials(all)
	for _, p := range partials {
		ignored = append(ignored, Ignored{Path: p, Why: "it was not written to its end"})
	}
	return ignored, err
}

// newer leaves out adapter files from before a step: their states have been
// rotated away as they should.
func newer(ignored []Ignored, step int) (out []Ignored) {
	for _, i := range ignored {
		file := strings.TrimSuffix(filepath.Base(i.Path), adapterExt)
		if n, err := strconv.Atoi(file[strings.LastIndexByte(file, '_')+1:]); err != nil || n > step {
			out = append(out, i)
		}
	}
	return out
}

// check reads a checkpoint whole.
func (f Folder) check(ctx context.Context, step int) (*Checkpoint, error) {
	file, err := safetensors.Open(f.statePath(step))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	h, err := readHead(file)
	if err != nil {
		return nil, err
	}
	if err := verifyState(ctx, file); err != nil {
		return nil, err
	}
	if h.Step != step {
		return nil, fmt.Errorf("it is of step %d", h.Step)
	}
	c := f.checkpoint(h)
	for i, file := range h.Files {
		path, err := f.find(file, step)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			c.AdapterPath = path
		}
	}
	return c, nil
}

// find returns the adapter file that a state of a step commits: under the name
// it was saved with, or, for a final one that has made way, under its numbered name.
func (f Folder) find(file savedFile, step int) (string, error) {
	paths := []string{filepath.Join(f.Dir, filepath.Base(file.Name))}
	if n := f.series(file.Series).numbered(step); n != paths[0] {
		paths = append(paths, n)
	}
	var faults []error
	for _, path := range paths {
		digest, err := lorafile.DigestFile(path)
		switch {
		case err != nil:
			faults = append(faults, err)
		case digest != file.Digest:
			faults = append(faults, fmt.Errorf("%s is not the file that was saved with it", path))
		default:
			return path, nil
		}
	}
	return "", errors.Join(faults...)
}

// headOf returns the head of a state file.
func headOf(path string) (head, error) {
	file, err := safetensors.Open(path)
	if err != nil {
		return head{}, err
	}
	defer file.Close()
	return readHead(file)
}
