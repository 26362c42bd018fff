package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/hashicorp/go-hclog"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shirou/gopsutil/v4/mem"
	"github.com/spf13/cobra"

	"longship/gpu/profile"
	"longship/internal/bench"
	"longship/internal/device"
	"longship/internal/forecast"
	"longship/pipeline"
)

// planFlags are the options of `plan`.
type planFlags struct {
	bench benchFlags
	gpu   string
	vram  string
	json  bool
}

// planned is what is said of a case.
type planned struct {
	bench.Case
	Arch     string          `json:"arch"`
	Batch    int             `json:"batch"`
	Forecast *bench.Forecast `json:"forecast,omitempty"`
	Refused  string          `json:"refused,omitempty"` // why it cannot work
	Least    string          `json:"smallest_cap,omitempty"`
	Host     hostNeed        `json:"host"`
}

// hostNeed is memory of this machine.
type hostNeed struct {
	Pinned    int64  `json:"pinned_bytes"`
	Available uint64 `json:"available_bytes"`
}

func (a *app) planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan [FILE]",
		Short: "Foresee step time and memory on a card, without one",
		Long: `Foresee how long a training step takes on a card, what bounds it, and what it needs
of the card and of the host. No card, model or photo is needed: the stages run on a
card that only keeps time. With a FILE it is of that pipeline, each resolution as a
square; without one of an architecture's cases, PX:RANK:OFFLOAD:CAP, as bench takes them.`,
		Example: "  longship plan --gpu rtx4090 --case 512:16:auto:23.5GiB --case 1024:16",
		Args:    needs("", 0, 1),
		RunE:    func(cmd *cobra.Command, files []string) error { return a.plan(cmd.Context(), f, files) },
	}
	b := &f.bench
	b.opt.Steps, b.logLevel = 1, "off"
	cmd.Flags().StringVar(&b.arch, "arch", "flux2-dev", strings.Join(bench.Archs(), ", "))
	cmd.Flags().StringArrayVar(&b.cases, "case", []string{"512:16:auto:auto"}, "PX:RANK:OFFLOAD:CAP (repeatable)")
	cmd.Flags().StringVar(&f.gpu, "gpu", "", strings.Join(forecast.Cards(), ", ")+"; empty: the card of this machine")
	cmd.Flags().StringVar(&f.vram, "vram", "", "cap of the cases that name none, 23.5GiB")
	cmd.Flags().IntVar(&b.opt.Batch, "batch", 1, "samples in a step")
	cmd.Flags().StringVar(&b.opt.QType, "qtype", "bf8", "how the weights inside the blocks are stored")
	cmd.Flags().StringVar(&b.opt.Outer, "outer", "bf16", "how the weights outside the blocks are stored")
	cmd.Flags().StringVar(&b.opt.Optimizer, "optimizer", "adamw8bit", "adamw or adamw8bit")
	cmd.Flags().BoolVar(&f.json, "json", false, "print each case as a line of JSON")
	return cmd
}

func (a *app) plan(ctx context.Context, f planFlags, files []string) error {
	cases, err := f.bench.read()
	if err != nil {
		return &usageError{error: err}
	}
	if len(files) > 0 {
		if cases, err = a.ofFile(files[0], &f.bench.opt, f.vram); err != nil {
			return err
		}
	}
	for i := range cases {
		if cases[i].Cap != "auto" || f.vram == "" {
			continue
		}
		c, err := bench.ParseCase(fmt.Sprintf("%d:%d:%s:%s", cases[i].Pixels, cases[i].Rank, cases[i].Offload, f.vram))
		if err != nil {
			return &usageError{error: fmt.Errorf("--vram %q is neither auto nor a size such as 23.5GiB", f.vram)}
		}
		cases[i] = c
	}
	card, err := cardNamed(f.gpu)
	if err != nil {
		return &usageError{error: fmt.Errorf("--gpu: %w", err)}
	}
	f.bench.opt.Prefetch, _ = a.reg.Lookup("prefetch")
	f.bench.opt.Train, _ = a.reg.Lookup("train")
	f.bench.opt.Log = hclog.NewNullLogger()
	var plans []planned
	for _, c := range cases {
		p, err := foresee(ctx, f.bench.opt, c, card)
		if err != nil {
			return fmt.Errorf("case %s: %w", c, err)
		}
		plans = append(plans, p)
		if f.json {
			if err := printJSON(a.out, p); err != nil {
				return err
			}
		}
	}
	if !f.json {
		printPlans(a.out, card, plans)
	}
	var refused []error
	for _, p := range plans {
		if p.Refused != "" {
			refused = append(refused, &usageError{error: fmt.Errorf("case %s: %s", p.Case, p.Refused)})
		}
	}
	return errors.Join(refused...)
}

// foresee plans one case. That its cap cannot work is part of the plan.
func foresee(ctx context.Context, o bench.Options, c bench.Case, card forecast.Card) (planned, error) {
	p := planned{Case: c, Arch: o.Arch.Name, Batch: o.Batch}
	if m, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		p.Host.Available = m.Available
	}
	f, err := o.Forecast(ctx, c, card)
	var head *pipeline.HeadError
	switch {
	case errors.As(err, &head):
		p.Refused = head.Error()
	case err != nil:
		return p, err
	default:
		p.Forecast, p.Host.Pinned = f, f.Pinned
	}
	if p.Least, err = o.Least(ctx, c, card); errors.As(err, &head) {
		err = nil
	}
	return p, err
}

// cardNamed returns a known card, or the one of this machine where name is empty.
func cardNamed(name string) (forecast.Card, error) {
	if name != "" {
		return forecast.CardOf(name)
	}
	c, err := device.Card(0)
	if err != nil {
		return c, fmt.Errorf("no card of this machine can be planned for (%w); name one: %s", err, strings.Join(forecast.Cards(), ", "))
	}
	return c, nil
}

// printPlans prints the plans as a table, one column a case.
func printPlans(w io.Writer, card forecast.Card, plans []planned) {
	t := newTable(w, fmt.Sprintf("%s, batch %d, foreseen on %s (%s)", plans[0].Arch, plans[0].Batch, card.Name, card.Source))
	head := table.Row{""}
	for _, p := range plans {
		head = append(head, p.Case.String())
	}
	t.AppendHeader(head)
	row := func(name string, text func(bench.Forecast) string) {
		line := table.Row{name}
		for _, p := range plans {
			if p.Forecast == nil {
				line = append(line, "-")
				continue
			}
			line = append(line, text(*p.Forecast))
		}
		t.AppendRow(line)
	}
	row("s/it", func(f bench.Forecast) string { return fmt.Sprintf("%.3g", f.Profile.Seconds) })
	row("forward", func(f bench.Forecast) string { return half(f.Profile.Forward) })
	row("backward", func(f bench.Forecast) string { return half(f.Profile.Backward) })
	row("copied a step", func(f bench.Forecast) string {
		bytes, _ := f.Profile.Sum("weights")
		return humanize.SIWithDigits(bytes, 1, "B")
	})
	row("streamed, recomputed", func(f bench.Forecast) string {
		return fmt.Sprintf("%d MiB of weights, %s", f.Streamed>>20, f.Recompute)
	})
	for _, part := range bench.Parts {
		row("card: "+part, func(f bench.Forecast) string { return fmt.Sprintf("%d MiB", f.Parts[part]>>20) })
	}
	row("card: all", func(f bench.Forecast) string { return fmt.Sprintf("%d MiB", f.Device>>20) })
	row("host, page-locked", func(f bench.Forecast) string { return fmt.Sprintf("%d MiB", f.Pinned>>20) })
	least, host := table.Row{"smallest cap"}, table.Row{"host, available here"}
	for _, p := range plans {
		least = append(least, p.Least)
		text := fmt.Sprintf("%d MiB", p.Host.Available>>20)
		if p.Host.Pinned > 0 && uint64(p.Host.Pinned) > p.Host.Available {
			text += ", too little"
		}
		host = append(host, text)
	}
	t.AppendRow(host)
	t.AppendRow(least)
	t.Render()
}

// half says how long a half takes and what bounds it.
func half(h profile.Half) string {
	bound := "compute"
	if h.Waiting > 0.02*h.Seconds {
		bound = "copies"
	}
	return fmt.Sprintf("%.3g s, bound by %s, compute %.0f %% busy", h.Seconds, bound, 100*h.Busy)
}
