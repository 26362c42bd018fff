package cache

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/hashicorp/go-hclog"
)

const (
	lockName   = "lock"        // locked by the system for as long as the holder lives
	holderName = "holder.json" // says who that is; information only
)

// opened are the folders that this process has open: the system's lock alone
// would let a second Open in the same process wait for itself.
var opened = struct {
	sync.Mutex
	dirs map[string]bool
}{dirs: map[string]bool{}}

// folderLock is the hold of one Store on its folder. The operating system
// releases it when the process ends, however it ends.
type folderLock struct {
	dir  string
	file *flock.Flock
}

// lockFolder takes the folder, waits for it if told to, or says who has it.
func lockFolder(ctx context.Context, dir string, wait bool, run string, log hclog.Logger) (*folderLock, error) {
	opened.Lock()
	if opened.dirs[dir] {
		opened.Unlock()
		return nil, fmt.Errorf("open cache %s: %w: share its Store", dir, ErrOpen)
	}
	opened.dirs[dir] = true
	opened.Unlock()

	l := &folderLock{dir: dir, file: flock.New(filepath.Join(dir, lockName))}
	if err := l.acquire(ctx, wait, log); err != nil {
		l.forget()
		return nil, err
	}
	l.announce(run, log)
	return l, nil
}

func (l *folderLock) acquire(ctx context.Context, wait bool, log hclog.Logger) error {
	ok, err := l.file.TryLock()
	if err == nil && !ok && wait {
		log.Info("waiting for the cache", "holder", (&BusyError{Dir: l.dir, Holder: readHolder(l.dir)}).Error())
		ok, err = l.file.TryLockContext(ctx, 100*time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("lock cache %s: %w", l.dir, err)
	}
	if !ok {
		return &BusyError{Dir: l.dir, Holder: readHolder(l.dir)}
	}
	return nil
}

// announce writes who holds the folder, for the message others will see.
func (l *folderLock) announce(run string, log hclog.Logger) {
	data, err := json.Marshal(Holder{PID: os.Getpid(), Run: run, Started: time.Now()})
	if err == nil {
		err = os.WriteFile(filepath.Join(l.dir, holderName), data, 0o644)
	}
	if err != nil {
		log.Warn("cannot write who holds the cache", "cache", l.dir, "error", err)
	}
}

func (l *folderLock) release() error {
	os.Remove(filepath.Join(l.dir, holderName))
	err := l.file.Unlock()
	l.forget()
	return err
}

func (l *folderLock) forget() {
	opened.Lock()
	delete(opened.dirs, l.dir)
	opened.Unlock()
}

// readHolder returns who holds a folder, or a zero Holder where that cannot be read.
func readHolder(dir string) (h Holder) {
	data, err := os.ReadFile(filepath.Join(dir, holderName))
	if err != nil || json.Unmarshal(data, &h) != nil {
		return Holder{}
	}
	return h
}
