package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"longship/pipeline"
	"longship/plugins/host"
	"longship/plugins/sdk"
	"longship/stages/port"
)

// The test program is the plugin too, when longship starts it.
func TestMain(m *testing.M) {
	if os.Getenv("LONGSHIP_PLUGIN") == "" {
		goleak.VerifyTestMain(m)
		return
	}
	switch os.Getenv("HOST_TEST") {
	case "prints":
		fmt.Println("loading…")
		time.Sleep(time.Minute)
	case "dies":
		fmt.Fprintln(os.Stderr, "no licence found")
		os.Exit(3)
	case "old":
		fmt.Println("1|7|tcp|127.0.0.1:1|grpc|")
		time.Sleep(time.Minute)
	}
	sdk.Serve(shoutFactory())
}

type config struct {
	Suffix string        `yaml:"suffix" doc:"put behind every caption"`
	Hang   bool          `yaml:"hang" doc:"sleep over the third sample"`
	Die    bool          `yaml:"die" doc:"exit over the third sample"`
	Leak   bool          `yaml:"leak" doc:"take memory over the third sample"`
	Pause  time.Duration `yaml:"pause" doc:"over each sample"`
	Times  []int         `yaml:"times" doc:"a list"`
	PIDs   pipeline.Path `yaml:"pids" doc:"file for the id of the process"`
}

func (c *config) Validate() error {
	if c.Suffix == "" {
		return &pipeline.FieldError{Path: "suffix", Msg: "must not be empty"}
	}
	return nil
}

// shout puts a suffix behind captions.
type shout struct {
	set pipeline.Settings
	cfg *config
	in  *pipeline.In[port.Sample]
	out *pipeline.Out[port.Sample]
}

func shoutFactory() pipeline.Factory {
	return pipeline.Factory{
		Type: "shout", Summary: "shouts captions",
		Default: func() any { return &config{Suffix: "!", Times: []int{1, 2}} },
		New: func(set pipeline.Settings, cfg any) (pipeline.Stage, error) {
			in := pipeline.NewIn[port.Sample]("samples")
			return &shout{set, cfg.(*config), in, pipeline.NewOut[port.Sample]("shouted", pipeline.Forwards(in))}, nil
		},
	}
}

func (s *shout) Ports() []pipeline.Port { return []pipeline.Port{s.in, s.out} }

func (s *shout) Run(ctx context.Context) error {
	s.set.Log.Info("shouting", "suffix", s.cfg.Suffix)
	if s.cfg.PIDs != "" {
		if err := os.WriteFile(string(s.cfg.PIDs), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
			return err
		}
	}
	n := 0
	defer func() { s.set.Summarise("shouted", n) }()
	return pipeline.Each(ctx, s.set, s.in, func(ctx context.Context, v port.Sample) error {
		n++
		time.Sleep(s.cfg.Pause)
		switch {
		case v.Caption == "":
			return pipeline.Reject(errors.New("it has no caption"))
		case n == 3 && s.cfg.Hang:
			time.Sleep(time.Hour)
		case n == 3 && s.cfg.Leak:
			for taken := [][]byte{}; ; time.Sleep(time.Millisecond) {
				taken = append(taken, bytes.Repeat([]byte{1}, 8<<20))
			}
		case n == 3 && s.cfg.Die:
			s.set.Log.Error("out of luck", "sample", v.ID)
			os.Exit(4)
		}
		v.Caption += s.cfg.Suffix
		return s.out.Send(ctx, v)
	})
}

// source and sink are the stages around the one in the program.
func source(n int) pipeline.Factory {
	type none struct{}
	return pipeline.Factory{Type: "source", Summary: "numbers", Default: func() any { return &none{} },
		New: func(pipeline.Settings, any) (pipeline.Stage, error) {
			out := pipeline.NewOut[port.Sample]("samples")
			return &plain{[]pipeline.Port{out}, func(ctx context.Context) error {
				for i := range n {
					v := port.Sample{ID: strconv.Itoa(i), Path: []byte(fmt.Sprintf("%d.png", i)), Caption: "c" + strconv.Itoa(i)}
					if i == 1 {
						v.Caption = ""
					}
					if err := out.Send(ctx, v); err != nil {
						return err
					}
				}
				return nil
			}}, nil
		}}
}

func sink(each func(port.Sample)) pipeline.Factory {
	type none struct{}
	return pipeline.Factory{Type: "sink", Summary: "takes", Default: func() any { return &none{} },
		New: func(pipeline.Settings, any) (pipeline.Stage, error) {
			in := pipeline.NewIn[port.Sample]("samples")
			return &plain{[]pipeline.Port{in}, func(ctx context.Context) error {
				for {
					v, err := in.Recv(ctx)
					if err == io.EOF {
						return nil
					}
					if err != nil {
						return err
					}
					each(v)
				}
			}}, nil
		}}
}

type plain struct {
	ports []pipeline.Port
	run   func(context.Context) error
}

func (s *plain) Ports() []pipeline.Port        { return s.ports }
func (s *plain) Run(ctx context.Context) error { return s.run(ctx) }

// run runs n samples through shout in a program; keys are of the program.
func run(t *testing.T, n int, keys, config string, each func(port.Sample)) (*pipeline.Result, error) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	programs := &host.Host{}
	defer func() { require.NoError(t, programs.Close()) }()
	reg, err := pipeline.NewRegistry(source(n), sink(each))
	require.NoError(t, err)
	src := fmt.Sprintf("plugins:\n  - {path: %q%s}\nstages:\n  - source\n  - shout: {%s}\n  - sink\n", self, keys, config)
	log := hclog.New(&hclog.LoggerOptions{Output: testWriter{t}, Level: hclog.Info})
	p, err := reg.Parse([]byte(src), pipeline.Options{Dir: t.TempDir(), Programs: programs, Log: log})
	if err != nil {
		return nil, err
	}
	return p.Run(t.Context(), pipeline.RunOptions{})
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func TestStageInAProgram(t *testing.T) {
	var got []string
	res, err := run(t, 4, "", `suffix: "?"`, func(v port.Sample) { got = append(got, v.Caption) })
	require.NoError(t, err)
	require.Equal(t, []string{"c0?", "c2?", "c3?"}, got)
	require.Equal(t, []pipeline.SetAside{{Stage: "shout", Item: "1.png", Reason: "it has no caption"}}, res.SetAside)
	require.Len(t, res.Summary, 1)
	require.EqualValues(t, 4, res.Summary[0].Value)
}

// Faults of a config are found as in process, at their places.
func TestFaultsHavePlaces(t *testing.T) {
	for config, want := range map[string]string{
		`sufix: "?"`:   `pipeline.yaml:5:13: unknown key "sufix"; did you mean "suffix"?`,
		`suffix: ""`:   `pipeline.yaml:5:21: stage shout: suffix: must not be empty`,
		`pause: quick`: `expected a duration`,
		`times: [a]`:   `times[0]: expected a whole number`,
	} {
		_, err := run(t, 1, "", config, func(port.Sample) {})
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*pipeline.ConfigError))
	}
}

// What is wrong with a program is one clear line at its key.
func TestBadPrograms(t *testing.T) {
	for name, c := range map[string]struct{ mode, keys, want string }{
		"wrong checksum":      {"", ", sha256: " + strings.Repeat("ab", 32), "not the program that was pinned"},
		"no checksum":         {"", ", sha256: abc", "64 hexadecimal digits"},
		"missing interpreter": {"", ", interpreter: python-of-nowhere", "not found on PATH"},
		"prints":              {"prints", "", `it printed "loading…" on standard output`},
		"dies":                {"dies", "", "exit status 3; its last lines: no licence found"},
		"another version":     {"old", "", "Plugin version: 7"},
		"no such policy":      {"", ", on_failure: retry", "must be stop or pass"},
		"no size":             {"", ", memory: lots", "is not a size"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("HOST_TEST", c.mode)
			_, err := run(t, 1, c.keys, "", func(port.Sample) {})
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			require.Contains(t, err.Error(), "pipeline.yaml:2:")
		})
	}
}

// A program that fails in the middle ends the run with its name and last lines,
// or the run goes on without it.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct{ keys, config, want string }{
		"dies":  {"", "die: true", "exit status 4; its last lines: shouting | out of luck"},
		"leaks": {", memory: 300MiB", "leak: true", "of memory, more than the 300 MiB that it may"},
		"hangs": {", timeout: 400ms", "hang: true", "it hangs: it was silent for 400ms"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, 10, c.keys, c.config, func(port.Sample) {})
			require.ErrorContains(t, err, "stage shout: program host.test")
			require.ErrorContains(t, err, c.want)
			var got []string
			res, err := run(t, 6, c.keys+", on_failure: pass", c.config, func(v port.Sample) { got = append(got, v.ID) })
			require.NoError(t, err)
			for _, item := range res.SetAside { // where the program could say so before it ended
				got = append(got, strings.TrimSuffix(item.Item, ".png"))
			}
			slices.Sort(got)
			require.Equal(t, []string{"0", "1", "2", "3", "4", "5"}, got)
		})
	}
}

// A program killed in the middle of 10,000 samples is started again: nothing is
// lost or doubled, and the order stays.
func TestKilledInTheMiddle(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals on Windows")
	}
	const n = 10_000
	pids := filepath.Join(t.TempDir(), "pid")
	var got []string
	killed := 0
	res, err := run(t, n, ", restart: 3", fmt.Sprintf("pids: %q", pids), func(v port.Sample) {
		got = append(got, v.ID)
		if len(got)%3000 == 0 {
			text, err := os.ReadFile(pids)
			require.NoError(t, err)
			pid, err := strconv.Atoi(string(text))
			require.NoError(t, err)
			proc, err := os.FindProcess(pid)
			require.NoError(t, err)
			if proc.Kill() == nil {
				killed++
			}
		}
	})
	require.NoError(t, err)
	require.Positive(t, killed)
	require.Len(t, res.SetAside, 1)
	require.Len(t, got, n-1)
	next := 0
	for _, id := range got {
		if next == 1 {
			next++
		}
		require.Equal(t, strconv.Itoa(next), id)
		next++
	}
}

// BenchmarkHop is a sample to a program and back, one at a time.
func BenchmarkHop(b *testing.B) {
	self, err := os.Executable()
	require.NoError(b, err)
	programs := &host.Host{}
	defer programs.Close()
	back := make(chan struct{})
	go2 := make(chan struct{})
	feed := pipeline.Factory{Type: "source", Summary: "numbers", Default: func() any { return &struct{}{} },
		New: func(pipeline.Settings, any) (pipeline.Stage, error) {
			out := pipeline.NewOut[port.Sample]("samples")
			return &plain{[]pipeline.Port{out}, func(ctx context.Context) error {
				for range go2 {
					if err := out.Send(ctx, port.Sample{ID: "a", Path: make([]byte, 200), Caption: strings.Repeat("c", 400)}); err != nil {
						return err
					}
				}
				return nil
			}}, nil
		}}
	reg, err := pipeline.NewRegistry(feed, sink(func(port.Sample) { back <- struct{}{} }))
	require.NoError(b, err)
	p, err := reg.Parse([]byte(fmt.Sprintf("plugins: [{path: %q}]\nstages: [source, shout, sink]\n", self)), pipeline.Options{Dir: b.TempDir(), Programs: programs})
	require.NoError(b, err)
	done := make(chan error, 1)
	go func() { _, err := p.Run(context.Background(), pipeline.RunOptions{}); done <- err }()
	for b.Loop() {
		go2 <- struct{}{}
		<-back
	}
	close(go2)
	require.NoError(b, <-done)
}
