// Package folderlock gives one holder at a time a folder to itself: the cache,
// and a run's output. The operating system holds the lock for as long as the
// process lives, so one that was killed blocks nobody. A file beside it says who
// the holder is; it is information only.
//
// Functions may be called from any goroutine; a Lock is released once.
package folderlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// The files that a lock puts into its folder.
const (
	LockName   = "lock"        // locked by the system
	HolderName = "holder.json" // who holds it
)

// ErrHeldHere: this process holds the folder already, so waiting would not end.
var ErrHeldHere = errors.New("already open in this process")

// Holder says who has a folder.
type Holder struct {
	PID     int       `json:"pid"`
	Run     string    `json:"run"`
	Started time.Time `json:"started"`
}

// BusyError is returned while another process has the folder.
type BusyError struct {
	What   string // "cache", "run": as Options.What
	Dir    string
	Holder Holder // zero PID where the holder could not be read
	Way    string // what the user can do
}

func (e *BusyError) Error() string {
	who := "another process"
	if e.Holder.PID != 0 {
		who = fmt.Sprintf("process %d (run %q, started %s)", e.Holder.PID, e.Holder.Run, e.Holder.Started.Format(time.DateTime))
	}
	return fmt.Sprintf("%s %s is in use by %s; %s", e.What, e.Dir, who, e.Way)
}

// Options say what is locked and how.
type Options struct {
	What string // what the folder is, for messages
	Way  string // what the user can do while it is held, for messages
	Run  string // the run that takes it, for others' messages
	// Wait, if not nil, is called once with who has the folder, and then Take
	// waits until it is free or ctx is done; else it fails at once.
	Wait func(*BusyError)
}

// held are the folders that this process has.
var held = struct {
	sync.Mutex
	dirs map[string]bool
}{dirs: map[string]bool{}}

// Lock is the hold on a folder.
type Lock struct {
	dir  string
	file *flock.Flock
}

// Take takes a folder, which must exist; dir's symbolic links must be resolved.
// The error is a *BusyError while another process has it, ErrHeldHere if this
// process has.
func Take(ctx context.Context, dir string, opt Options) (*Lock, error) {
	if !claim(dir) {
		return nil, fmt.Errorf("%s %s: %w", opt.What, dir, ErrHeldHere)
	}
	// Who may write in the folder may lock it, whoever made the file.
	l := &Lock{dir: dir, file: flock.New(filepath.Join(dir, LockName), flock.SetPermissions(0o644))}
	if err := l.acquire(ctx, opt); err != nil {
		forget(dir)
		return nil, err
	}
	return l, nil
}

// claim enters a folder into the process's list; false if it is there already.
func claim(dir string) bool {
	held.Lock()
	defer held.Unlock()
	if held.dirs[dir] {
		return false
	}
	held.dirs[dir] = true
	return true
}

func forget(dir string) {
	held.Lock()
	defer held.Unlock()
	delete(held.dirs, dir)
}

func (l *Lock) acquire(ctx context.Context, opt Options) error {
	ok, holder, err := l.try()
	if err == nil && !ok {
		busy := &BusyError{What: opt.What, Dir: l.dir, Holder: holder, Way: opt.Way}
		if opt.Wait == nil {
			return busy
		}
		opt.Wait(busy)
		_, err = l.file.TryLockContext(ctx, 100*time.Millisecond)
	}
	if err == nil {
		err = l.announce(opt.Run)
	}
	if err != nil {
		l.file.Unlock()
		return fmt.Errorf("lock %s %s: %w", opt.What, l.dir, err)
	}
	return nil
}

// try takes the lock or says who has it. A holder that has just come, or is about
// to leave, has not said who it is: it gets a moment.
func (l *Lock) try() (ok bool, holder Holder, err error) {
	for range 20 {
		if ok, err = l.file.TryLock(); ok || err != nil {
			return ok, Holder{}, err
		}
		if holder = readHolder(l.dir); holder.PID != 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false, holder, nil
}

// announce writes who holds the folder.
func (l *Lock) announce(run string) error {
	data, err := json.Marshal(Holder{PID: os.Getpid(), Run: run, Started: time.Now()})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(l.dir, HolderName), data, 0o644)
}

// Release gives the folder free.
func (l *Lock) Release() error {
	os.Remove(filepath.Join(l.dir, HolderName))
	err := l.file.Unlock()
	forget(l.dir)
	return err
}

// readHolder returns who holds a folder, or a zero Holder where that cannot be read.
func readHolder(dir string) (h Holder) {
	data, err := os.ReadFile(filepath.Join(dir, HolderName))
	if err != nil || json.Unmarshal(data, &h) != nil {
		return Holder{}
	}
	return h
}
