package cli

import (
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
)

func (a *app) checkCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check pipelines: keys, wiring, paths and model headers; every fault at once, nothing is run",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			var errs []error
			for _, file := range files {
				p, err := a.reg.Load(file, f.options(hclog.NewNullLogger()))
				if err == nil {
					_, err = p.Check(cmd.Context())
				}
				if err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(a.out, "%s: no fault found\n", file)
			}
			return errors.Join(errs...)
		},
	}
	f.shared(cmd)
	return cmd
}

func (a *app) graphCommand() *cobra.Command {
	var f runFlags
	var format string
	cmd := &cobra.Command{
		Use:   "graph FILE",
		Short: "Show how the stages of a pipeline are wired",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			p, err := a.reg.Load(files[0], f.options(hclog.NewNullLogger()))
			if err != nil {
				return err
			}
			g, err := p.Graph(format)
			if err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			fmt.Fprintln(a.out, g)
			return nil
		},
	}
	f.shared(cmd)
	cmd.Flags().StringVar(&format, "format", "mermaid", "mermaid or dot")
	return cmd
}
