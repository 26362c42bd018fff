package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"longship/internal/lorafile"
)

// loraTools are the commands that make adapter files of others.
func loraTools() []*cobra.Command {
	return []*cobra.Command{loraConvert(), loraMerge()}
}

// outputFlags adds what all of them know about their output.
func outputFlags(cmd *cobra.Command, o *lorafile.Output, as *string) {
	cmd.Flags().StringVar(&o.Layout, "to", lorafile.ComfyUI, "layout: "+strings.Join(lorafile.AllLayouts, ", "))
	cmd.Flags().StringVar(&o.DType, "dtype", "", "bf16, fp16 or fp32; the source's type where not given")
	cmd.Flags().BoolVar(&o.Force, "force", false, "replace the output if it is there")
	cmd.Flags().StringVar(as, "as", "", "lora: write LoKr and LoHa as the LoRA that equals them")
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
	outputFlags(cmd, &o, &as)
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
	outputFlags(cmd, &o, &as)
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
