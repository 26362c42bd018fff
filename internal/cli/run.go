package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"longship/internal/losslog"
	"longship/internal/runstate"
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
}

// options returns how pipeline files are read under these flags.
func (f *runFlags) options(log hclog.Logger) pipeline.Options {
	set := f.set
	if f.device != "" {
		set = append(append([]string{}, set...), "device="+f.device)
	}
	return pipeline.Options{Set: set, Log: log}
}

func (f *runFlags) shared(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.set, "set", nil, "set a value of the file: stages.<id>.<key>=VALUE or <key>=VALUE (repeatable)")
	cmd.Flags().StringVar(&f.device, "device", "", "auto, cpu or cuda:N, in place of the file's")
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE...",
		Short: "Run pipelines, one after the other; run again to go on where the last run stopped",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			for _, file := range files {
				if err := a.run(cmd.Context(), file, f); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f.shared(cmd)
	cmd.Flags().StringVar(&f.logLevel, "log-level", "info", "trace, debug, info, warn or error")
	cmd.Flags().BoolVar(&f.json, "json", false, "print events as JSON lines on standard output, and the log as JSON")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait for a cache or an output folder that another run has, instead of failing")
	cmd.Flags().BoolVar(&f.rehash, "rehash", false, "read files again that path, size and times say are known")
	cmd.Flags().BoolVar(&f.restart, "restart", false, "move the run's old output aside and start afresh")
	return cmd
}

func (a *app) run(ctx context.Context, file string, f runFlags) error {
	level := hclog.LevelFromString(f.logLevel)
	if level == hclog.NoLevel {
		return fmt.Errorf("%w: --log-level %q is not trace, debug, info, warn or error", errUsage, f.logLevel)
	}
	show := a.newDisplay(f.json)
	defer show.Close()
	log := hclog.New(&hclog.LoggerOptions{Name: "longship", Level: level, Output: show, JSONFormat: f.json, DisableTime: !f.json})
	p, err := a.reg.Load(file, f.options(log))
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
	losses, err := losslog.Open(filepath.Join(folder.Dir, "loss.jsonl"))
	if err != nil {
		return err
	}

	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	o := &observer{show: show, losses: losses, log: log}
	result, runErr := p.Run(ctx, pipeline.RunOptions{Signals: signals, OnEvent: o.event})
	show.Close()
	if result == nil {
		return runErr
	}
	s := summarise(result, o, runErr)
	err = errors.Join(s.write(folder.Dir, p.Env.Name, losses), runErr)
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
	if err != nil {
		return err
	}
	if aside != "" {
		log.Info("moved the old output aside", "to", aside)
	}
	return env.Close()
}

// observer takes in a run's events.
type observer struct {
	show   *display
	losses *losslog.Log
	log    hclog.Logger

	steps    int           // optimiser steps of this process
	stepTime time.Duration // their time
	saved    []string      // files written
	first    *losslog.Entry
	last     *losslog.Entry // validations
	broken   bool           // the loss log cannot be written; said once
}

func (o *observer) event(ev pipeline.Event) {
	o.show.event(ev)
	switch ev.Event {
	case "step":
		o.steps++
		o.stepTime += time.Duration(number(ev.Data["s_per_it"]) * float64(time.Second))
		o.loss(losslog.Entry{Event: "step", Step: int(number(ev.Data["step"])), Loss: losslog.Finite(number(ev.Data["loss"])), LR: number(ev.Data["lr"])})
	case "validation":
		e := losslog.Entry{Event: "validation", Step: int(number(ev.Data["step"])), Loss: losslog.Finite(number(ev.Data["loss"])), Zero: losslog.Finite(number(ev.Data["zero"]))}
		if o.first == nil {
			o.first = &e
		}
		o.last = &e
		o.loss(e)
	case "saved":
		if path, ok := ev.Data["file"].(string); ok && !slices.Contains(o.saved, path) {
			o.saved = append(o.saved, path)
		}
	}
}

func (o *observer) loss(e losslog.Entry) {
	if err := o.losses.Add(e); err != nil && !o.broken {
		o.broken = true
		o.log.Warn("the loss curve will be incomplete", "error", err)
	}
}

// number reads a number of an event, whatever type it travelled as.
func number(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case float32:
		return float64(v)
	case int:
		return float64(v)
	case int64:
		return float64(v)
	case uint64:
		return float64(v)
	}
	return 0
}

// isTerminal says whether w is a terminal that bars can be drawn on.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
