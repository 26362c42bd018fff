package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// project is a copy of examples/quickstart that a test may change.
type project struct {
	t   testing.TB
	dir string
	env []string // variables beside the test's own
}

func newProject(t testing.TB) *project {
	t.Helper()
	p := &project{t: t, dir: t.TempDir()}
	for _, name := range []string{"model", "photos", "pipeline.yaml", "resume.yaml"} {
		copyAll(t, filepath.Join("quickstart", name), p.path(name))
	}
	return p
}

func (p *project) path(rel string) string { return filepath.Join(p.dir, filepath.FromSlash(rel)) }

func (p *project) write(rel, content string) {
	p.t.Helper()
	require.NoError(p.t, os.MkdirAll(filepath.Dir(p.path(rel)), 0o755))
	require.NoError(p.t, os.WriteFile(p.path(rel), []byte(content), 0o644))
}

func (p *project) read(rel string) []byte {
	p.t.Helper()
	b, err := os.ReadFile(p.path(rel))
	require.NoError(p.t, err)
	return b
}

// copyAll copies a file, or a folder with all that is in it.
func copyAll(t testing.TB, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	require.NoError(t, err)
	if info.IsDir() {
		require.NoError(t, os.CopyFS(to, os.DirFS(from)))
		return
	}
	b, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, b, 0o644))
}

// outcome is what a process left.
type outcome struct {
	code   int // -1 where a signal ended it
	stdout string
	stderr string
	took   time.Duration
	cpu    time.Duration // time of all cores together
}

// all is everything that was said, for messages.
func (o outcome) all() string {
	return fmt.Sprintf("exit code %d after %s\n%s\n%s", o.code, o.took, o.stderr, o.stdout)
}

// patience is how long a run may take before it counts as hanging.
const patience = 5 * time.Minute

// run runs the program in the project's folder until it ends.
func (p *project) run(args ...string) outcome {
	p.t.Helper()
	return p.start(args...).wait()
}

// done runs the program and requires that it succeeds.
func (p *project) done(args ...string) outcome {
	p.t.Helper()
	o := p.run(args...)
	require.Equal(p.t, 0, o.code, o.all())
	return o
}

// output is what a process has said so far.
type output struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.said.String()
}

// process is the program while it runs.
type process struct {
	t              testing.TB
	cmd            *exec.Cmd
	stdout, stderr output
	started        time.Time
	cancel         context.CancelFunc
	ctx            context.Context
}

func (p *project) start(args ...string) *process {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r := &process{t: p.t, ctx: ctx, cancel: cancel, started: time.Now(), cmd: exec.CommandContext(ctx, program, args...)}
	r.cmd.Dir = p.dir
	r.cmd.Env = append(os.Environ(), p.env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	r.cmd.Cancel = func() error { return showGoroutines(r.cmd.Process) }
	r.cmd.WaitDelay = 10 * time.Second
	require.NoError(p.t, r.cmd.Start())
	p.t.Cleanup(func() { r.cmd.Process.Kill(); cancel() })
	return r
}

// wait waits for the end. A process that hangs fails the test with what its
// goroutines were doing.
func (r *process) wait() outcome {
	r.t.Helper()
	defer r.cancel()
	err := r.cmd.Wait()
	o := outcome{code: r.cmd.ProcessState.ExitCode(), stdout: r.stdout.String(), stderr: r.stderr.String(), took: time.Since(r.started)}
	o.cpu = r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime()
	if r.ctx.Err() != nil {
		require.FailNow(r.t, "the program hangs", o.all())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(r.t, err, o.all())
	}
	require.NotContains(r.t, o.stderr, "WARNING: DATA RACE")
	return o
}

// await waits until the process has written text.
func (r *process) await(text string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		return strings.Contains(r.stdout.String(), text) || strings.Contains(r.stderr.String(), text)
	}, patience, 5*time.Millisecond, "%q is never said: %s %s", text, &r.stderr, &r.stdout)
}

// event is a line of a run's --json output.
type event map[string]any

func (e event) number(key string) float64 {
	x, _ := e[key].(float64)
	return x
}

// events returns the events of one kind, in order.
func (o outcome) events(t testing.TB, kind string) (out []event) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(o.stdout))
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		e := event{}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e), lines.Text())
		if e["event"] == kind {
			out = append(out, e)
		}
	}
	require.NoError(t, lines.Err())
	return out
}

// summary returns the last line of a run's --json output, with the stages'
// lines under "stage.key".
func (o outcome) summary(t testing.TB) event {
	t.Helper()
	all := o.events(t, "summary")
	require.Len(t, all, 1, o.all())
	s := all[0]
	for _, l := range s["stages"].([]any) {
		line := l.(map[string]any)
		s[fmt.Sprint(line["stage"], ".", line["key"])] = line["value"]
	}
	return s
}

// steps returns the steps that a run says it took.
func (o outcome) steps(t testing.TB) (out []int) {
	t.Helper()
	for _, e := range o.events(t, "step") {
		out = append(out, int(e.number("step")))
	}
	return out
}

// logged says whether a line of the log holds every text.
func (o outcome) logged(texts ...string) bool {
	for line := range strings.Lines(o.stderr) {
		all := true
		for _, text := range texts {
			all = all && strings.Contains(line, text)
		}
		if all {
			return true
		}
	}
	return false
}

// quick sets what makes a run of seconds: small images, short prompts, few
// steps, a small adapter. More settings may follow.
func quick(file string, more ...string) []string {
	args := []string{"run", file, "--json"}
	for _, s := range append([]string{
		"stages.dataset.resolution=[64]", "stages.textembed.max_length=48",
		"stages.train.steps=4", "stages.train.validate_every=0", "stages.train.network={type: lora, rank: 4, alpha: 4}",
		"stages.checkpoint.every=2",
	}, more...) {
		args = append(args, "--set", s)
	}
	return args
}

// adapter is the final adapter of the quickstart, below the project's folder.
const adapter = "output/quickstart/quickstart.safetensors"

// tree returns the bytes of every file below a folder by its path.
func tree(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[filepath.ToSlash(rel)] = string(b)
		return err
	}))
	return out
}

// names returns the keys of a tree, for messages.
func names(tree map[string]string) (out []string) {
	for name := range tree {
		out = append(out, name)
	}
	return out
}
