package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"longship/cache"
	"longship/internal/cli"
	"longship/internal/golden"
	"longship/internal/tinymodel"
	"longship/stages"
)

// The scripts run this test binary under the name of the program.
func TestMain(m *testing.M) {
	testscript.Main(m, commands)
}

var commands = map[string]func(){
	"longship": func() { stages.Main(stages.Builtin()...) },
}

// Scripts find the quickstart's model and photos at $QS.
func TestScripts(t *testing.T) {
	qs, err := filepath.Abs("../../examples/quickstart")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("QS", filepath.ToSlash(qs))
			env.Setenv("GOLDEN", filepath.ToSlash(golden.Path()))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": code, "jsonlines": jsonLines, "json": isJSON, "model": model, "hold": hold, "interrupt": interrupt, "flip": flip, "cut": cut,
		},
	})
}

// code N PROGRAM ARGS... runs a program, which must end with exit code N.
func code(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// jsonlines FILE KEY... requires that every line of a file is a JSON object with
// these keys.
func jsonLines(ts *testscript.TestScript, _ bool, args []string) {
	text := strings.TrimSuffix(ts.ReadFile(args[0]), "\n")
	for n, line := range strings.Split(text, "\n") {
		v := map[string]any{}
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			ts.Fatalf("line %d: %v: %s", n+1, err, line)
		}
		for _, key := range args[1:] {
			if _, ok := v[key]; !ok {
				ts.Fatalf("line %d has no %q: %s", n+1, key, line)
			}
		}
	}
}

// json FILE requires that a file is JSON.
func isJSON(ts *testscript.TestScript, _ bool, args []string) {
	var v any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &v))
}

// model KIND FOLDER makes the folder of a tiny model.
func model(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(tinymodel.Write(ts.MkAbs(args[1]), tinymodel.Kind(args[0]), tinymodel.Seed))
}

// hold FOLDER keeps a cache open in another process than the script's programs.
func hold(ts *testscript.TestScript, _ bool, args []string) {
	store, err := cache.Open(context.Background(), ts.MkAbs(args[0]), cache.Options{Run: "the other"})
	ts.Check(err)
	ts.Defer(func() { ts.Check(store.Close()) })
}

// interrupt FILE ARGS... starts longship, interrupts it as soon as FILE is there,
// and requires that it exits 130. What it says is logged.
func interrupt(ts *testscript.TestScript, _ bool, args []string) {
	cmd := exec.Command(os.Args[0])
	cmd.Args = append([]string{"longship"}, args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "QS="+ts.Getenv("QS"))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	ts.Check(cmd.Start())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			break
		}
		if time.Now().After(deadline) {
			ts.Check(cmd.Process.Kill())
			ts.Fatalf("%s is not written: %s", args[0], &said)
		}
	}
	ts.Check(cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	ts.Logf("%s", &said)
	if got := cmd.ProcessState.ExitCode(); got != cli.ExitInterrupted {
		ts.Fatalf("exit code %d, want %d", got, cli.ExitInterrupted)
	}
}

// flip FILE changes the bits of the byte in the middle of a file.
func flip(ts *testscript.TestScript, _ bool, args []string) {
	b := []byte(ts.ReadFile(args[0]))
	b[len(b)/2] ^= 0xff
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o644))
}

// cut FILE takes the last byte off a file.
func cut(ts *testscript.TestScript, _ bool, args []string) {
	b := ts.ReadFile(args[0])
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b[:len(b)-1]), 0o644))
}

// failing is a writer on which nothing can be written.
type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

// A full disk behind standard output is a failure.
func TestOutputThatCannotBeWritten(t *testing.T) {
	var said bytes.Buffer
	full := errors.New("no space left on device")
	if got := cli.Run([]string{"stages"}, failing{full}, &said, stages.Builtin()...); got != cli.ExitFailed {
		t.Errorf("exit code %d: %s", got, &said)
	}
	if want := fmt.Sprintf("longship: standard output: %v\n", full); said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
}
