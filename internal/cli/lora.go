package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"longship/internal/lorafile"
)

func (a *app) loraCommand() *cobra.Command {
	var asJSON bool
	inspect := &cobra.Command{
		Use:   "inspect FILE...",
		Short: "Show what is in adapter files: layout, base, rank, scale and norms of every module, metadata",
		Args:  needs("an adapter file", 1, 0),
		RunE: func(cmd *cobra.Command, files []string) error {
			var errs []error
			for _, file := range files {
				r, err := lorafile.Inspect(file)
				switch {
				case err != nil:
					errs = append(errs, named(err))
				case asJSON:
					errs = append(errs, printJSON(a.out, r))
				default:
					a.showAdapter(r)
				}
			}
			return errors.Join(errs...)
		},
	}
	inspect.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return group("lora", "Look into adapter files, and make others of them", append([]*cobra.Command{inspect}, a.loraTools()...)...)
}

func (a *app) showAdapter(r *lorafile.Report) {
	t := newTable(a.out, r.Path)
	t.AppendRows([]table.Row{
		{"layout", r.Layout},
		{"base", r.Base},
		{"parameters", humanize.Comma(r.Params)},
		{"types", strings.Join(r.DTypes, ", ")},
		{"bytes", humanize.Comma(r.Bytes)},
		{"hash", r.Hash},
	})
	for _, k := range slices.Sorted(maps.Keys(r.Metadata)) {
		t.AppendRow(table.Row{"metadata " + k, shorten(r.Metadata[k])})
	}
	for _, n := range r.Notes {
		t.AppendRow(table.Row{"note", n})
	}
	t.Render()
	t = newTable(a.out, fmt.Sprintf("%d modules", len(r.Modules)))
	t.AppendHeader(table.Row{"module", "kind", "rank", "in", "out", "alpha", "scale", "|A|", "|B|", "|scale·B·A|"})
	for _, m := range r.Modules {
		norm := ""
		if m.Norm != 0 {
			norm = fmt.Sprintf("%.4g", m.Norm)
		}
		t.AppendRow(table.Row{m.Name, m.Kind, m.Rank, m.In, m.Out, fmt.Sprintf("%g", m.Alpha), fmt.Sprintf("%g", m.Scale),
			fmt.Sprintf("%.4g", m.NormA), fmt.Sprintf("%.4g", m.NormB), norm})
	}
	t.Render()
}

// shorten keeps a value to one line of a table.
func shorten(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 100 {
		return string(r[:99]) + "…"
	}
	return s
}
