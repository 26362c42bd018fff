package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"longship/internal/device"
)

func (a *app) devicesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show the cards that can be used, or why there is none",
		Args:  needs("", 0, 0),
		RunE: func(*cobra.Command, []string) error {
			cards, why := device.Cards()
			if asJSON {
				out := map[string]any{"cards": cards}
				if why != nil {
					out["reason"] = why.Error()
				}
				return printJSON(a.out, out)
			}
			t := newTable(a.out, "devices")
			t.AppendHeader(table.Row{"device", "name", "memory", "free", "libraries"})
			for _, c := range cards {
				var libs []string
				for _, name := range slices.Sorted(maps.Keys(c.Libraries)) {
					libs = append(libs, name+" "+c.Libraries[name])
				}
				t.AppendRow(table.Row{fmt.Sprintf("cuda:%d", c.Index), c.Name, humanize.IBytes(uint64(c.Total)), humanize.IBytes(uint64(c.Free)), strings.Join(libs, ", ")})
			}
			t.AppendRow(table.Row{"cpu", "the reference device", "", "", ""})
			t.Render()
			if len(cards) == 0 {
				fmt.Fprintf(a.out, "no card: %v\ndevice: auto takes the cpu for models below 1 B parameters\n", why)
				return nil
			}
			fmt.Fprintln(a.out, "device: auto takes cuda:0")
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}
