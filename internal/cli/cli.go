// Package cli is the command line: commands, what is shown while a run goes on,
// and exit codes. It is the only package that prints and the only one that ends
// the process.
//
// Results go to standard output; log and progress to standard error. A reader
// of standard output that goes away ends what is printed, never a run.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"longship/cache"
	"longship/internal/runstate"
	"longship/pipeline"
)

// Exit codes.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2 // wrong usage or configuration
	ExitInterrupted = 130
)

// Main runs the command line with the given stages and ends the process.
func Main(programs Programs, factories ...pipeline.Factory) {
	signal.Ignore(syscall.SIGPIPE) // output sees to readers that go away
	os.Exit(RunWith(programs, os.Args[1:], os.Stdout, os.Stderr, factories...))
}

// Programs starts the programs with stages of their own that a pipeline names,
// and ends them.
type Programs interface {
	pipeline.Programs
	io.Closer
}

// Run runs the command line and returns the exit code.
func Run(args []string, stdout, stderr io.Writer, factories ...pipeline.Factory) int {
	return RunWith(nil, args, stdout, stderr, factories...)
}

// RunWith is Run of a command line that knows how to start programs; no program
// outlives it. programs may be nil.
func RunWith(programs Programs, args []string, stdout, stderr io.Writer, factories ...pipeline.Factory) int {
	reg, err := pipeline.NewRegistry(factories...)
	if err != nil {
		fmt.Fprintln(stderr, "longship:", err)
		return ExitFailed
	}
	out := &output{w: stdout}
	a := &app{reg: reg, programs: programs, out: out, err: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(context.Background())
	if !a.started && err != nil {
		err = &usageError{err, fmt.Sprintf("\n`%s --help` shows what there is", cmd.CommandPath())}
	}
	if programs != nil {
		err = errors.Join(err, programs.Close())
	}
	return a.exit(errors.Join(err, out.failure()))
}

// app is what the commands share.
type app struct {
	reg      *pipeline.Registry
	programs Programs // nil where none can be started
	out, err io.Writer
	started  bool // a command's own work has begun: an error is no longer one of usage
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "longship",
		Short:         "Train LoRA adapters of FLUX.2 on one GPU",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("longship {{.Version}}\n")
	root.AddCommand(a.runCommand(), a.checkCommand(), a.graphCommand(), a.stagesCommand(), a.cacheCommand(), a.loraCommand(),
		a.benchCommand(), a.planCommand(), a.devicesCommand())
	root.PersistentPreRun = func(*cobra.Command, []string) { a.started = true }
	return root
}

// group makes a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	var names []string
	for _, c := range commands {
		names = append(names, c.Name())
	}
	cmd := &cobra.Command{Use: use, Short: short, Args: func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("a command is missing: %s", strings.Join(names, ", "))
		}
		return fmt.Errorf("unknown command %q: there are %s", args[0], strings.Join(names, ", "))
	}, Run: func(*cobra.Command, []string) {}} // never reached: it makes cobra look at Args
	cmd.AddCommand(commands...)
	return cmd
}

// needs refuses to run a command with fewer arguments than least, or with more
// than most, which is no limit where 0.
func needs(what string, least, most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("%s is missing", what)
		case most > 0 && len(args) > most:
			return fmt.Errorf("%q is one argument too many", args[most])
		}
		return nil
	}
}

// usageError is what is wrong with the arguments of a command.
type usageError struct {
	error
	hint string
}

func (e *usageError) Error() string { return strings.TrimSpace(e.error.Error()) + e.hint }

func (e *usageError) Unwrap() error { return e.error }

// named makes an error about an argument that names nothing one of usage.
func named(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &usageError{error: err}
	}
	return err
}

// exit says what went wrong and returns the code for it.
func (a *app) exit(err error) int {
	switch {
	case err == nil:
		return ExitDone
	case errors.Is(err, pipeline.ErrInterrupted):
		fmt.Fprintln(a.err, "longship: interrupted; run the same command again to go on")
		return ExitInterrupted
	}
	a.say(err)
	if isUsage(err) {
		return ExitUsage
	}
	return ExitFailed
}

// say prints each of the errors that err joins.
func (a *app) say(err error) {
	if config, ok := err.(*pipeline.ConfigError); ok {
		fmt.Fprintln(a.err, config) // each fault begins with its place
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		if whole := errors.Join(many.Unwrap()...); whole != nil && whole.Error() == err.Error() {
			for _, e := range many.Unwrap() {
				a.say(e)
			}
			return
		}
	}
	fmt.Fprintln(a.err, "longship:", err)
}

// isUsage says whether it is the command line or the pipeline that must be
// changed. A folder that another run holds is no such thing.
func isUsage(err error) bool {
	var config *pipeline.ConfigError
	if errors.As(err, &config) {
		return slices.ContainsFunc(config.Faults, func(f pipeline.Fault) bool { return !errors.As(f.Err, new(*cache.BusyError)) })
	}
	return errors.As(err, new(*usageError)) || errors.As(err, new(*pipeline.FieldError)) ||
		errors.As(err, new(*pipeline.HeadError)) || errors.As(err, new(*runstate.RefusedError))
}

// version returns the module's version, or the commit that was built.
func version() string {
	v := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			v = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && v == "(devel)" {
				v = s.Value
			}
		}
	}
	return fmt.Sprintf("%s %s %s/%s", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
