package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"longship/internal/lorafile"
	"longship/internal/lorafile/lowrank"
)

// loraTools are the commands that make adapter files of others.
func (a *app) loraTools() []*cobra.Command {
	return []*cobra.Command{loraConvert(), a.loraResize(), loraMerge()}
}

// outputFlags adds what all of them know about their output.
func outputFlags(cmd *cobra.Command, o *lorafile.Output) {
	cmd.Flags().StringVar(&o.Layout, "to", lorafile.ComfyUI, "layout: "+strings.Join(lorafile.AllLayouts, ", "))
	cmd.Flags().StringVar(&o.DType, "dtype", "", "bf16, fp16 or fp32; the source's type where not given")
	cmd.Flags().BoolVar(&o.Force, "force", false, "replace the output if it is there")
}

// asLoRA reads --as.
func asLoRA(as string) (bool, error) {
	if as != "" && as != "lora" {
		return false, &usageError{error: fmt.Errorf("--as %s: there is only lora", as)}
	}
	return as == "lora", nil
}

func loraConvert() *cobra.Command {
	var o lorafile.Output
	var as string
	cmd := &cobra.Command{
		Use:   "convert FILE OUTPUT",
		Short: "Write an adapter in another layout, with the same effect",
		Args:  needs("an adapter file, or the output,", 2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			plain, err := asLoRA(as)
			if err != nil {
				return err
			}
			o.Path = args[1]
			return named(lorafile.Convert(cmd.Context(), args[0], o, plain))
		},
	}
	outputFlags(cmd, &o)
	cmd.Flags().StringVar(&as, "as", "", "lora: write LoKr and LoHa as the LoRA that equals them")
	return cmd
}

func loraMerge() *cobra.Command {
	var o lorafile.Output
	var as string
	cmd := &cobra.Command{
		Use:   "merge FILE[:WEIGHT]... OUTPUT",
		Short: "Add adapters up into one whose rank is the sum of theirs",
		Args:  needs("an adapter file, or the output,", 2, 0),
		RunE: func(cmd *cobra.Command, args []string) error {
			plain, err := asLoRA(as)
			if err != nil {
				return err
			}
			var from []lorafile.Weighted
			for _, arg := range args[:len(args)-1] {
				from = append(from, weighted(arg))
			}
			o.Path = args[len(args)-1]
			return named(lorafile.Merge(cmd.Context(), from, o, plain))
		},
	}
	outputFlags(cmd, &o)
	cmd.Flags().StringVar(&as, "as", "", "lora: write LoKr and LoHa as the LoRA that equals them")
	return cmd
}

// weighted reads FILE[:WEIGHT]. What follows the last colon of a Windows path is no number.
func weighted(arg string) lorafile.Weighted {
	if i := strings.LastIndexByte(arg, ':'); i > 0 {
		if w, err := strconv.ParseFloat(arg[i+1:], 64); err == nil && w-w == 0 {
			return lorafile.Weighted{Path: arg[:i], Weight: w}
		}
	}
	return lorafile.Weighted{Path: arg, Weight: 1}
}

func (a *app) loraResize() *cobra.Command {
	var o lorafile.Output
	var plot string
	var want lowrank.Want
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resize FILE OUTPUT",
		Short: "Bring an adapter to a lower rank, or to the rank that keeps a share of its energy",
		Args:  needs("an adapter file, or the output,", 2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Path = args[1]
			report, err := lorafile.Resize(cmd.Context(), []lorafile.Weighted{{Path: args[0], Weight: 1}}, o, want, func(done, of int, r lorafile.Resized) {
				fmt.Fprintf(a.err, "%d of %d pairs: %s, rank %d to %d, %.2f %% kept\n", done, of, r.Module, r.From, r.To, 100*r.Kept)
			})
			if err != nil {
				return named(err)
			}
			if plot != "" {
				if err := lorafile.PlotResized(plot, report); err != nil {
					return err
				}
			}
			if asJSON {
				return printJSON(a.out, report)
			}
			t := newTable(a.out, o.Path)
			t.AppendHeader(table.Row{"module", "rank", "to", "energy kept", "|ΔW|"})
			for _, r := range report {
				about := ""
				if !r.Exact {
					about = "about "
				}
				t.AppendRow(table.Row{r.Module, r.From, r.To, fmt.Sprintf("%s%.2f %%", about, 100*r.Kept), fmt.Sprintf("%s%.4g", about, r.Norm)})
			}
			t.Render()
			return nil
		},
	}
	outputFlags(cmd, &o)
	cmd.Flags().IntVar(&want.Rank, "rank", 0, "the rank, or with --energy the most that it may be")
	cmd.Flags().Float64Var(&want.Energy, "energy", 0, "share of every pair's energy to keep, such as 0.95")
	cmd.Flags().StringVar(&plot, "plot", "", "draw the kept energy into this PNG")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
