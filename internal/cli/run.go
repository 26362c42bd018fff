package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"longship/internal/losslog"
	"longship/internal/runstate"
	"longship/internal/tracefile"
	"longship/pipeline"
)

// runFlags are the options of `run`, some of which other commands share.
type runFlags struct {
	set      []string
	device   string
	logLevel string
	json     bool
	wait     bool
	rehash   bool
	restart  bool
	trace    string
}

func (f *runFlags) shared(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "set a value of the file: stages.<id>.<key>=VALUE or <key>=VALUE (repeatable)")
	cmd.Flags().StringVar(&f.device, "device", "", "auto, cpu or cuda:N, in place of the file's")
}

// load reads a pipeline file under the flags. Whatever is wrong with it is a
// matter of usage or configuration.
func (a *app) load(file string, f runFlags, log hclog.Logger) (*pipeline.Pipeline, error) {
	set := f.set
	if f.device != "" {
		set = append(append([]string{}, set...), "device="+f.device)
	}
	opts := pipeline.Options{Set: set, Log: log}
	if a.programs != nil {
		opts.Programs = a.programs
	}
	p, err := a.reg.Load(file, opts)
	if err != nil && !errors.As(err, new(*pipeline.ConfigError)) {
		return nil, &usageError{error: err}
	}
	return p, err
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE...",
		Short: "Run pipelines, one after the other; run again to go on where the last run stopped",
		Args:  needs("a pipeline file", 1, 0),
		RunE: func(cmd *cobra.Command, files []string) error {
			if hclog.LevelFromString(f.logLevel) == hclog.NoLevel {
				return &usageError{error: fmt.Errorf("--log-level %q is not trace, debug, info, warn, error or off", f.logLevel)}
			}
			return a.runAll(cmd.Context(), files, f)
		},
	}
	f.shared(cmd)
	cmd.Flags().StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn, error or off")
	cmd.Flags().BoolVar(&f.json, "json", false, "print events as JSON lines on standard output, and the log as JSON")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait for a cache or an output folder that another run has, instead of failing")
	cmd.Flags().BoolVar(&f.rehash, "rehash", false, "read files again that path, size and times say are known")
	cmd.Flags().StringVar(&f.trace, "trace", "", traceHelp)
	cmd.Flags().BoolVar(&f.restart, "restart", false, "move the run's old output aside and start afresh")
	return cmd
}

// runAll reads all files before it runs the first: a slip in the last is not to
// be found out the day after.
func (a *app) runAll(ctx context.Context, files []string, f runFlags) error {
	var errs []error
	for _, file := range files {
		_, err := a.load(file, f, hclog.NewNullLogger())
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	trace, err := newTracing(f.trace, tracedBehind)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err = a.run(ctx, file, f, trace); err != nil {
			break
		}
	}
	return errors.Join(err, trace.write())
}

// tracedBehind is the number of steps that a run with --trace takes before it
// traces: the first load kernels and fill the ring.
const tracedBehind = 3

// run checks a pipeline and runs it.
func (a *app) run(ctx context.Context, file string, f runFlags, trace *tracing) error {
	show := a.newDisplay(f.json)
	defer show.Close()
	log := hclog.New(&hclog.LoggerOptions{
		Name: "longship", Level: hclog.LevelFromString(f.logLevel), Output: show, JSONFormat: f.json, DisableTime: !f.json,
	})
	p, err := a.load(file, f, log)
	if err != nil {
		return err
	}
	p.Env.Wait, p.Env.Rehash = f.wait, f.rehash
	folder := runstate.In(p.Env.Output, p.Env.Name)
	if f.restart {
		if err := a.restart(ctx, p.Env, log); err != nil {
			return err
		}
	}
	if _, err := p.Check(ctx); err != nil {
		return err
	}
	losses := losslog.New(filepath.Join(folder.Dir, "loss.jsonl"))
	signals, stop := interrupts()
	defer stop()

	if trace != nil {
		trace.Run(p.Env.Name)
		if err := tracefile.Use(ctx, p.Env, trace.file()); err != nil {
			return err
		}
		defer trace.ended()
	}
	o := &observer{show: show, losses: losses, log: log, trace: trace}
	result, runErr := p.Run(ctx, pipeline.RunOptions{Signals: signals, OnEvent: o.event})
	if err := show.Close(); err != nil {
		log.Warn("progress was not shown to its end", "error", err)
	}
	s := summarise(result, o, runErr)
	err = runErr
	if o.trained() {
		err = errors.Join(s.write(folder.Dir, p.Env.Name, losses), err)
	}
	if f.json {
		return errors.Join(s.printJSON(a.out), err)
	}
	s.print(a.out)
	return err
}

// restart moves what earlier runs of this name wrote out of the way.
func (a *app) restart(ctx context.Context, env *pipeline.Env, log hclog.Logger) error {
	run, err := runstate.Shared(hclog.WithContext(ctx, log), env)
	if err != nil {
		return err
	}
	aside, err := run.Restart()
	if aside != "" {
		log.Info("moved the old output aside", "to", aside)
	}
	return errors.Join(err, env.Close())
}
