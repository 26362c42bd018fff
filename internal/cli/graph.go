package cli

import (
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
)

func (a *app) graphCommand() *cobra.Command {
	var f runFlags
	var format string
	cmd := &cobra.Command{
		Use:   "graph FILE",
		Short: "Show how the stages of a pipeline are wired",
		Args:  needs("a pipeline file", 1, 1),
		RunE: func(cmd *cobra.Command, files []string) error {
			p, err := a.load(files[0], f, hclog.NewNullLogger())
			if err != nil {
				return err
			}
			g, err := p.Graph(format)
			if err != nil {
				return &usageError{error: err}
			}
			fmt.Fprintln(a.out, g)
			return nil
		},
	}
	f.shared(cmd)
	cmd.Flags().StringVar(&format, "format", "mermaid", "mermaid or dot")
	return cmd
}
