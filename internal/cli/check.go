package cli

import (
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

func (a *app) checkCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "check FILE...",
		Short: "Check pipelines: keys, wiring, paths and model headers; every fault at once, nothing is run",
		Args:  needs("a pipeline file", 1, 0),
		RunE: func(cmd *cobra.Command, files []string) error {
			log := hclog.New(&hclog.LoggerOptions{Name: "longship", Level: hclog.Warn, Output: a.err, DisableTime: true})
			var errs []error
			for _, file := range files {
				p, err := a.load(file, f, log)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				found, err := p.Check(cmd.Context())
				if err != nil {
					errs = append(errs, err)
					continue
				}
				t := newTable(a.out, fmt.Sprintf("%s: no fault found", file))
				for _, e := range found {
					t.AppendRow(table.Row{e.Stage, e.Key, valueText(e.Value)})
				}
				t.Render()
			}
			return errors.Join(errs...)
		},
	}
	f.shared(cmd)
	return cmd
}
