package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-plugin/runner"
)

// process is a running program; to go-plugin it is a runner.Runner. It dies with
// this process, together with what it started.
type process struct {
	cmd    *exec.Cmd
	log    *logSink
	last   lastLines // of standard error
	stdin  *os.File  // our end: closed, the program is to end
	stdout io.ReadCloser
	stderr io.ReadCloser
	exited chan struct{}
	err    error // of Wait, once exited

	mu      sync.Mutex
	printed string // the first line on standard output
	cause   error  // why it was cut off
}

var _ runner.Runner = (*process)(nil)

// Start starts the program on a thread of its own, which stays until the
// program has ended: on Linux the program is killed when that thread ends.
func (p *process) Start(context.Context) error {
	var ours, theirs [3]*os.File
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("make a pipe: %w", err)
		}
		ours[i], theirs[i] = r, w
		if i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	p.stdin = ours[0]
	p.stdout = p.lines(ours[1], p.onStdout)
	p.stderr = p.lines(ours[2], p.last.add)
	p.exited = make(chan struct{})
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		own(p.cmd)
		err := p.cmd.Start()
		for _, f := range theirs {
			_ = f.Close()
		}
		var end func()
		if err == nil {
			end, err = adopt(p.cmd)
		}
		started <- err
		if p.cmd.Process != nil {
			p.err = p.cmd.Wait()
			if end != nil {
				end()
			}
		}
		_ = p.stdin.Close()
		close(p.exited)
	}()
	return <-started
}

// onStdout notes what is printed where only the handshake belongs.
func (p *process) onStdout(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.printed == "" {
		p.printed = line
		return
	}
	p.log.log().Warn("the program printed on standard output; it should log, or print on standard error", "program", p.Name(), "line", line)
}

// cut ends the program because of cause.
func (p *process) cut(cause error) {
	p.mu.Lock()
	if p.cause == nil {
		p.cause = cause
	}
	p.mu.Unlock()
	_ = p.Kill(context.Background())
}

// why says how the program ended, in one line.
func (p *process) why() error {
	p.mu.Lock()
	cause := p.cause
	p.mu.Unlock()
	if cause == nil {
		cause = errors.New("it ended by itself")
		if p.err != nil {
			cause = p.err // "exit status 3", "signal: killed"
		}
	}
	if last := p.last.String(); last != "" {
		return fmt.Errorf("%w; its last lines: %s", cause, last)
	}
	return cause
}

func (p *process) Kill(context.Context) error { return kill(p.cmd) }

func (p *process) Wait(context.Context) error {
	<-p.exited
	return p.err
}

func (p *process) Stdout() io.ReadCloser                                 { return p.stdout }
func (p *process) Stderr() io.ReadCloser                                 { return p.stderr }
func (p *process) Name() string                                          { return p.cmd.Path }
func (p *process) Diagnose(context.Context) string                       { return "" }
func (p *process) PluginToHost(net, addr string) (string, string, error) { return net, addr, nil }
func (p *process) HostToPlugin(net, addr string) (string, string, error) { return net, addr, nil }
func (p *process) ID() string                                            { return strconv.Itoa(p.cmd.Process.Pid) }

// lines reads whole lines of r, cut to what a log line may have, at most so many
// a second; seen has each that is passed on.
func (p *process) lines(r io.ReadCloser, seen func(string)) io.ReadCloser {
	return &lineReader{of: p, file: r, r: bufio.NewReaderSize(r, 32<<10), seen: seen}
}

type lineReader struct {
	of     *process
	file   io.ReadCloser
	r      *bufio.Reader
	seen   func(string)
	rest   []byte
	second time.Time
	count  int // lines in this second
}

func (l *lineReader) Close() error { return l.file.Close() }

func (l *lineReader) Read(b []byte) (int, error) {
	for len(l.rest) == 0 {
		line, more, err := l.r.ReadLine()
		if err != nil {
			return 0, io.EOF
		}
		line = append([]byte{}, line...)
		for more && err == nil { // what is beyond the buffer is left out
			_, more, err = l.r.ReadLine()
		}
		if now := time.Now(); now.Sub(l.second) > time.Second {
			if l.count > logPerSecond {
				l.of.log.log().Warn("the program floods its log; lines were left out", "program", l.of.Name(), "lines", l.count-logPerSecond)
			}
			l.second, l.count = now, 0
		}
		if l.count++; l.count > logPerSecond {
			continue
		}
		l.seen(plainLine(line))
		l.rest = append(line, '\n')
	}
	n := copy(b, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// plainLine returns the message of a line of hclog in JSON, any other line as it is.
func plainLine(line []byte) string {
	var entry struct {
		Message string `json:"@message"`
		Error   any    `json:"error"`
	}
	if len(line) > 0 && line[0] == '{' && json.Unmarshal(line, &entry) == nil && entry.Message != "" {
		if entry.Error != nil {
			return fmt.Sprintf("%s: %v", entry.Message, entry.Error)
		}
		return entry.Message
	}
	return string(line)
}
