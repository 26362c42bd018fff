package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	gopsutil "github.com/shirou/gopsutil/v4/process"
	"google.golang.org/grpc"

	"longship/pipeline"
	"longship/plugins/proto"
)

// program is a program that a pipeline names. It runs from the first use to close.
type program struct {
	cfg    pipeline.Program
	name   string
	memory uint64 // 0: no limit
	log    *logSink

	mu     sync.Mutex
	now    *instance // running, or the last that was
	closed bool
}

// instance is a program that is running.
type instance struct {
	process *process
	client  *plugin.Client
	stages  proto.StagesClient
}

func newProgram(cfg pipeline.Program) (*program, error) {
	p := &program{cfg: cfg, name: filepath.Base(string(cfg.Path)), log: newLogSink()}
	var errs []error
	if cfg.Interpreter != "" {
		if _, err := exec.LookPath(cfg.Interpreter); err != nil {
			errs = append(errs, fault("interpreter", "%q, which is to run %s, is not found on PATH: install it, or name another", cfg.Interpreter, p.name))
		}
	}
	if want, err := hex.DecodeString(cfg.SHA256); cfg.SHA256 != "" && (err != nil || len(want) != sha256.Size) {
		errs = append(errs, fault("sha256", "expected 64 hexadecimal digits, not %q", cfg.SHA256))
	}
	if cfg.Restart < 0 {
		errs = append(errs, fault("restart", "must be 0 or more, not %d", cfg.Restart))
	}
	switch cfg.OnFailure {
	case "", "stop", "pass":
	default:
		errs = append(errs, fault("on_failure", "must be stop or pass, not %q", cfg.OnFailure))
	}
	if cfg.Timeout < 0 {
		errs = append(errs, fault("timeout", "must be more than 0, not %v", cfg.Timeout))
	}
	if cfg.Memory != "" {
		n, err := humanize.ParseBytes(cfg.Memory)
		if err != nil || n == 0 {
			errs = append(errs, fault("memory", "%q is not a size like 4GiB", cfg.Memory))
		}
		p.memory = n
	}
	if p.cfg.Timeout == 0 {
		p.cfg.Timeout = silentWithin
	}
	return p, errors.Join(errs...)
}

// pinned refuses a file that is not the one that was pinned.
func (p *program) pinned() error {
	if p.cfg.SHA256 == "" {
		return nil
	}
	f, err := os.Open(string(p.cfg.Path))
	if err != nil {
		return fault("path", "%v", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return fault("path", "%v", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, p.cfg.SHA256) {
		return fault("sha256", "%s has the checksum %s: it is not the program that was pinned, and is not started", p.name, got)
	}
	return nil
}

// running returns the program as it runs, started if it does not.
func (p *program) running() (*instance, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("program %s: it has been ended", p.name)
	}
	if p.now != nil {
		select {
		case <-p.now.process.exited:
			p.now.end()
		default:
			return p.now, nil
		}
	}
	if err := p.pinned(); err != nil {
		return nil, err
	}
	i, err := p.start()
	if err != nil {
		return nil, fmt.Errorf("program %s: %w", p.name, err)
	}
	p.now = i
	return i, nil
}

// start starts the program and waits for its handshake.
func (p *program) start() (*instance, error) {
	cmd := exec.Command(string(p.cfg.Path), p.cfg.Args...)
	if p.cfg.Interpreter != "" {
		cmd = exec.Command(p.cfg.Interpreter, append([]string{string(p.cfg.Path)}, p.cfg.Args...)...)
	}
	i := &instance{process: &process{cmd: cmd, log: p.log}}
	printed := func(b []byte) {
		if line := strings.TrimSpace(string(b)); line != "" {
			p.log.log().Warn("the program printed", "program", p.name, "line", line)
		}
	}
	i.client = plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: proto.Handshake(),
		Plugins:         plugin.PluginSet{proto.Service: &proto.Plugin{}},
		RunnerFunc: func(_ hclog.Logger, spec *exec.Cmd, _ string) (runner.Runner, error) {
			cmd.Env = append(spec.Env, "PYTHONUNBUFFERED=1")
			return i.process, nil
		},
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		StartTimeout:     helloWithin,
		Logger:           p.log.intercept,
		SyncStdout:       writerFunc(printed), SyncStderr: writerFunc(printed),
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(proto.MaxMessage), grpc.MaxCallSendMsgSize(proto.MaxMessage))},
	})
	if _, err := i.client.Start(); err != nil {
		err = i.hello(err)
		i.end()
		return nil, err
	}
	rpc, err := i.client.Client()
	if err == nil {
		var raw any
		if raw, err = rpc.Dispense(proto.Service); err == nil {
			i.stages = raw.(proto.StagesClient)
		}
	}
	if err != nil {
		i.end()
		return nil, fmt.Errorf("connect: %w", err)
	}
	if p.memory > 0 {
		go p.watchMemory(i)
	}
	return i, nil
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) { f(b); return len(b), nil }

// hello says in one line why there was no handshake.
func (i *instance) hello(err error) error {
	text := err.Error()
	switch {
	case i.process.exited == nil:
		return err
	case strings.Contains(text, "incompatible API version"), strings.Contains(text, "incompatible core API version"):
		return fmt.Errorf("it speaks another version of the protocol (%s), this longship speaks version %d: build it with this longship's package plugins/sdk", strings.Split(text, "\n")[0], proto.Version)
	case strings.Contains(text, "timeout while waiting"):
		return fmt.Errorf("it did not say hello within %v of its start%s", helloWithin, lastOf(i.process))
	}
	i.process.mu.Lock()
	printed := i.process.printed
	i.process.mu.Unlock()
	if printed != "" && strings.Contains(text, "Unrecognized remote plugin message") {
		return fmt.Errorf("it printed %q on standard output, where only the handshake belongs: log, or print on standard error", printed)
	}
	select {
	case <-i.process.exited:
		return fmt.Errorf("it ended before it said hello: %w", i.process.why())
	case <-time.After(endWithin):
		return fmt.Errorf("%s%s", strings.Split(text, "\n")[0], lastOf(i.process))
	}
}

func lastOf(p *process) string {
	if last := p.last.String(); last != "" {
		return "; its last lines: " + last
	}
	return ""
}

// watchMemory cuts the program off when it takes more than it may.
func (p *program) watchMemory(i *instance) {
	proc, err := gopsutil.NewProcess(int32(i.process.cmd.Process.Pid))
	if err != nil {
		return
	}
	for {
		select {
		case <-i.process.exited:
			return
		case <-time.After(200 * time.Millisecond):
		}
		if m, err := proc.MemoryInfo(); err == nil && m.RSS > p.memory {
			i.process.cut(fmt.Errorf("it was cut off: it took %s of memory, more than the %s that it may", humanize.IBytes(m.RSS), humanize.IBytes(p.memory)))
			return
		}
	}
}

// end ends the program, in peace if it can, and waits for it.
func (i *instance) end() {
	if i.process.exited == nil || i.process.cmd.Process == nil {
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		i.client.Kill()
	}()
	select {
	case <-ended:
	case <-time.After(endWithin):
		_ = i.process.Kill(context.Background())
		<-ended
	}
	_ = i.process.Kill(context.Background())
	<-i.process.exited
}

func (p *program) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.now != nil {
		p.now.end()
	}
}
