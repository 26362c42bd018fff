package host

import (
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// logSink passes what go-plugin logs for a program to the log of whoever uses
// the program at the time: its own lines at debug, the program's at their level.
type logSink struct {
	intercept hclog.InterceptLogger
	dest      atomic.Pointer[hclog.Logger]
}

func newLogSink() *logSink {
	s := &logSink{intercept: hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "host", Level: hclog.Trace, Output: io.Discard})}
	s.to(hclog.NewNullLogger())
	s.intercept.RegisterSink(s)
	return s
}

// to directs the log to dest, unless that takes nothing.
func (s *logSink) to(dest hclog.Logger) {
	if s.dest.Load() == nil || dest.IsError() {
		s.dest.Store(&dest)
	}
}

func (s *logSink) log() hclog.Logger { return *s.dest.Load() }

// Accept is called by hclog for every line.
func (s *logSink) Accept(name string, level hclog.Level, msg string, args ...any) {
	log := s.log()
	program, of := strings.CutPrefix(name, "host.")
	if !of || strings.HasPrefix(program, "stdio") {
		if level > hclog.Debug {
			level = hclog.Debug
		}
		log.Log(level, msg, args...)
		return
	}
	log = log.Named(program)
	kept := make([]any, 0, len(args))
	for i := 0; i+1 < len(args); i += 2 {
		switch key := args[i]; {
		case key == "timestamp":
		case key == "@module":
			if module, ok := args[i+1].(string); ok {
				log = log.Named(module)
			}
		default:
			kept = append(kept, key, args[i+1])
		}
	}
	log.Log(level, msg, kept...)
}

// lastLines keeps the last lines that a program wrote, for errors.
type lastLines struct {
	mu    sync.Mutex
	lines []string
}

const (
	linesKept  = 3
	lineLength = 300
)

func (l *lastLines) add(line string) {
	line = strings.TrimSpace(line)
	if line == "" {
		return
	}
	if len(line) > lineLength {
		line = strings.ToValidUTF8(line[:lineLength], "") + "…"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	if len(l.lines) > linesKept {
		l.lines = l.lines[1:]
	}
}

// String returns the lines in one line; "" where there is none.
func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, " | ")
}
