package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/hashicorp/go-hclog"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"longship/internal/bench"
	"longship/internal/device"
	"longship/pipeline"
)

// benchFlags are the options of `bench`.
type benchFlags struct {
	arch, device, logLevel string
	cases                  []string
	opt                    bench.Options
	json                   bool
	trace                  string
}

func (a *app) benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure training steps of a model's shape, on weights made from a seed",
		Long: `Measure training steps of a model's shape, on weights made from a seed: the stock
prefetch and train stage, without a model or photos. A case is PX:RANK:OFFLOAD:CAP,
square images of PX pixels, the adapter's rank, the share of the weights that is
streamed and the memory that all of it may take; what is left out is auto.`,
		Example: "  longship bench --arch flux2-dev --case 512:16:auto:23.5GiB --case 1024:16:0.71:23.5GiB",
		Args:    needs("", 0, 0),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.bench(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&f.arch, "arch", "flux2-dev", strings.Join(bench.Archs(), ", "))
	cmd.Flags().StringArrayVar(&f.cases, "case", []string{"512:16:auto:auto"}, "PX:RANK:OFFLOAD:CAP (repeatable)")
	cmd.Flags().StringVar(&f.device, "device", "auto", "auto, cpu or cuda:N")
	cmd.Flags().IntVar(&f.opt.Batch, "batch", 1, "samples in a step")
	cmd.Flags().IntVar(&f.opt.Steps, "steps", 10, "measured steps of a case")
	cmd.Flags().IntVar(&f.opt.Warmup, "warmup", 3, "steps before the measured ones")
	cmd.Flags().StringVar(&f.opt.QType, "qtype", "bf8", "how the weights inside the blocks are stored")
	cmd.Flags().StringVar(&f.opt.Outer, "outer", "bf16", "how the weights outside the blocks are stored")
	cmd.Flags().StringVar(&f.opt.Optimizer, "optimizer", "adamw8bit", "adamw or adamw8bit")
	cmd.Flags().Uint64Var(&f.opt.Seed, "seed", 42, "seed of weights, samples and noise")
	cmd.Flags().BoolVar(&f.json, "json", false, "print each case as a line of JSON")
	cmd.Flags().StringVar(&f.trace, "trace", "", traceHelp)
	cmd.Flags().StringVar(&f.logLevel, "log-level", "warn", "trace, debug, info, warn, error or off")
	return cmd
}

func (a *app) bench(ctx context.Context, f benchFlags) error {
	cases, err := f.read()
	if err != nil {
		return &usageError{error: err}
	}
	trace, err := newTracing(f.trace, f.opt.Warmup+f.opt.Steps)
	if err != nil {
		return err
	}
	f.opt.Trace = trace.file()
	f.opt.Prefetch, _ = a.reg.Lookup("prefetch")
	f.opt.Train, _ = a.reg.Lookup("train")
	show := a.newDisplay(false)
	defer show.Close()
	f.opt.Log = hclog.New(&hclog.LoggerOptions{Name: "longship", Level: hclog.LevelFromString(f.logLevel), Output: show, DisableTime: true})
	f.opt.OnEvent = func(ev pipeline.Event) {
		trace.event(ev)
		if ev.Event == "progress" {
			show.event(ev)
		}
	}
	f.opt.Device, err = device.Choose(f.device, func() (int64, error) { return f.opt.Arch.Config.Params(), nil })
	if err != nil {
		return err
	}
	var results []bench.Result
	err = bench.Run(ctx, f.opt, cases, func(r bench.Result) error {
		results = append(results, r)
		trace.ended()
		if f.json {
			return printJSON(a.out, r)
		}
		return nil
	})
	err = errors.Join(err, f.opt.Device.Close(), show.Close(), trace.write())
	if !f.json && len(results) > 0 {
		printBench(a.out, results)
	}
	return err
}

// read checks the options.
func (f *benchFlags) read() (cases []bench.Case, err error) {
	var errs []error
	if f.opt.Arch, err = bench.ArchOf(f.arch); err != nil {
		errs = append(errs, fmt.Errorf("--arch: %w", err))
	}
	for _, text := range f.cases {
		c, err := bench.ParseCase(text)
		errs = append(errs, err)
		cases = append(cases, c)
	}
	for _, n := range []struct {
		flag    string
		v, most int
	}{{"batch", f.opt.Batch, 1}, {"steps", f.opt.Steps, 1}, {"warmup", f.opt.Warmup, 0}} {
		if n.v < n.most {
			errs = append(errs, fmt.Errorf("--%s %d is below %d", n.flag, n.v, n.most))
		}
	}
	if hclog.LevelFromString(f.logLevel) == hclog.NoLevel {
		errs = append(errs, fmt.Errorf("--log-level %q is not trace, debug, info, warn, error or off", f.logLevel))
	}
	return cases, errors.Join(errs...)
}

// printBench prints the results as a table, one column a case.
func printBench(w io.Writer, results []bench.Result) {
	t := newTable(w, fmt.Sprintf("%s on %s, batch %d, medians of %d steps", results[0].Arch, results[0].Device, results[0].Batch, results[0].Steps))
	head := table.Row{""}
	for _, r := range results {
		head = append(head, r.Case.String())
	}
	t.AppendHeader(head)
	row := func(name string, text func(bench.Result) string) {
		line := table.Row{name}
		for _, r := range results {
			line = append(line, text(r))
		}
		t.AppendRow(line)
	}
	row("s/it", func(r bench.Result) string { return fmt.Sprintf("%.3f", r.StepTime.Median) })
	row("foreseen", func(r bench.Result) string {
		if r.Forecast == nil {
			return "-"
		}
		return fmt.Sprintf("%.3f", r.Forecast.Profile.Seconds)
	})
	row("p10 .. p90", func(r bench.Result) string { return fmt.Sprintf("%.3f .. %.3f", r.StepTime.Low, r.StepTime.High) })
	row("start", func(r bench.Result) string { return fmt.Sprintf("%.1f s", r.Setup) })
	for _, key := range profiled(results) {
		row(key, func(r bench.Result) string {
			for _, l := range r.Profile.Lines() {
				if l.Key == key {
					return l.Text
				}
			}
			return ""
		})
	}
	row("host memory", func(r bench.Result) string { return humanize.IBytes(uint64(r.RSS)) })
	t.Render()
}

// profiled returns what was measured of the streams in any of the cases, but
// for what the table has of itself.
func profiled(results []bench.Result) (keys []string) {
	for _, r := range results {
		for _, l := range r.Profile.Lines() {
			if l.Key != "host memory" && !slices.Contains(keys, l.Key) {
				keys = append(keys, l.Key)
			}
		}
	}
	return keys
}
