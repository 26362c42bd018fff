// Package host starts programs that bring stages of their own and makes their
// stages look like those in process: `check`, `graph`, `stages` and editors see
// no difference. Package sdk is the other end.
//
// A Host starts a program when a pipeline that names it is read, once, and ends
// it at Close; no program outlives its Host, however that ends. Methods may be
// called from any goroutine.
package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"longship/pipeline"
)

// Limits on what a program may do. A program beyond one of them is cut off.
const (
	helloWithin  = 30 * time.Second // from its start to the handshake
	silentWithin = 10 * time.Minute // over one item, where `timeout` is left out
	endWithin    = 3 * time.Second  // after its stage was cancelled, or it was asked to end
	ahead        = 32               // items of an input that a stage is given before it is done with the first
	maxHeld      = 512 << 20        // bytes that a stage sends without being done with an item
	logPerSecond = 1000             // lines; further ones are dropped and counted
)

// Host holds the programs of a process. Its zero value works.
type Host struct {
	mu       sync.Mutex
	programs map[string]*program // by what the pipeline says of them
}

var _ pipeline.Programs = (*Host)(nil)

// Close ends every program and waits for it.
func (h *Host) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all sync.WaitGroup
	for _, p := range h.programs {
		all.Go(p.close)
	}
	all.Wait()
	h.programs = nil
	return nil
}

// Factories starts a program, or every program of a folder, and returns the
// factories of its stages. A pipeline.FieldError is a fault of that key of p.
func (h *Host) Factories(p pipeline.Program, log hclog.Logger) ([]pipeline.Factory, error) {
	paths, err := programsOf(p)
	if err != nil {
		return nil, err
	}
	var all []pipeline.Factory
	var errs []error
	for _, path := range paths {
		one := p
		one.Path = pipeline.Path(path)
		prog, err := h.program(one, log)
		if err == nil {
			var found []pipeline.Factory
			found, err = prog.factories()
			all = append(all, found...)
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// program returns the program of p, which need not be running.
func (h *Host) program(p pipeline.Program, log hclog.Logger) (*program, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := fmt.Sprintf("%#v", p)
	prog, ok := h.programs[key]
	if !ok {
		var err error
		if prog, err = newProgram(p); err != nil {
			return nil, err
		}
		if h.programs == nil {
			h.programs = map[string]*program{}
		}
		h.programs[key] = prog
	}
	prog.log.to(log)
	return prog, nil
}

func fault(key, format string, args ...any) error {
	return &pipeline.FieldError{Path: key, Msg: fmt.Sprintf(format, args...)}
}

// programsOf returns the programs that p means: its file, or all of its folder.
func programsOf(p pipeline.Program) ([]string, error) {
	path := string(p.Path)
	if path == "" {
		return nil, errors.New("path is missing: the program, or a folder of programs")
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault("path", "there is no program %s", path)
	}
	if err != nil {
		return nil, fault("path", "%v", err)
	}
	if !info.IsDir() {
		if p.Interpreter == "" && !executable(info) {
			return nil, fault("path", "%s cannot be executed: make it executable, or name its interpreter (`interpreter: python3`)", path)
		}
		return []string{path}, nil
	}
	if p.SHA256 != "" {
		return nil, fault("sha256", "a checksum is of one file, and %s is a folder: name its programs one by one", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fault("path", "%v", err)
	}
	var paths []string
	for _, e := range entries {
		file := filepath.Join(path, e.Name())
		info, err := os.Stat(file)
		if err == nil && info.Mode().IsRegular() && !strings.HasPrefix(e.Name(), ".") && executable(info) {
			paths = append(paths, file)
		}
	}
	if len(paths) == 0 {
		return nil, fault("path", "no file in %s can be executed", path)
	}
	return paths, nil
}

func executable(info fs.FileInfo) bool {
	if runtime.GOOS == "windows" {
		ext := strings.ToLower(filepath.Ext(info.Name()))
		return ext == ".exe" || ext == ".com"
	}
	return info.Mode()&0o111 != 0
}
