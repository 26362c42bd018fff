// Package cli is the command line: commands, what is shown while a run goes on,
// and exit codes. It is the only package that prints and the only one that ends
// the process.
//
// Results go to standard output; log and progress to standard error.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

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
func Main(factories ...pipeline.Factory) {
	os.Exit(Run(os.Args[1:], os.Stdout, os.Stderr, factories...))
}

// Run runs the command line and returns the exit code.
func Run(args []string, stdout, stderr io.Writer, factories ...pipeline.Factory) int {
	reg, err := pipeline.NewRegistry(factories...)
	if err != nil {
		fmt.Fprintln(stderr, "longship:", err)
		return ExitFailed
	}
	a := &app{reg: reg, out: stdout, err: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return a.exit(root.ExecuteContext(context.Background()))
}

// app is what the commands share.
type app struct {
	reg      *pipeline.Registry
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
	root.AddCommand(a.runCommand(), a.checkCommand(), a.graphCommand(), a.stagesCommand(), a.cacheCommand(), a.loraCommand())
	root.PersistentPreRun = func(*cobra.Command, []string) { a.started = true }
	return root
}

// exit says what went wrong and returns the code for it.
func (a *app) exit(err error) int {
	var config *pipeline.ConfigError
	var field *pipeline.FieldError
	var refused *runstate.RefusedError
	switch {
	case err == nil:
		return ExitDone
	case errors.Is(err, pipeline.ErrInterrupted):
		fmt.Fprintln(a.err, "longship: interrupted; run the same command again to go on")
		return ExitInterrupted
	case errors.As(err, &config):
		fmt.Fprintln(a.err, config)
		return ExitUsage
	case !a.started, errors.Is(err, errUsage), errors.As(err, &field), errors.As(err, &refused):
		fmt.Fprintln(a.err, "longship:", err)
		return ExitUsage
	default:
		fmt.Fprintln(a.err, "longship:", err)
		return ExitFailed
	}
}

// errUsage marks errors of wrong usage that cobra does not find.
var errUsage = errors.New("wrong usage")

// version returns the module version, or the commit that was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") {
			v = s.Value
		}
	}
	if v == "" {
		return "(devel)"
	}
	return v
}
