package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"longship/pipeline"
)

func (a *app) stagesCommand() *cobra.Command {
	var schema bool
	cmd := &cobra.Command{
		Use:   "stages [NAME]",
		Short: "List the stages; or one stage's ports and its config with defaults",
		Args:  needs("", 0, 1),
		RunE: func(cmd *cobra.Command, names []string) error {
			if schema {
				b, err := a.reg.Schema()
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(a.out, "%s\n", b)
				return err
			}
			if len(names) == 0 {
				return a.listStages()
			}
			f, ok := a.reg.Lookup(names[0])
			if !ok {
				return &usageError{error: fmt.Errorf("there is no stage %q; `longship stages` lists them", names[0])}
			}
			return a.describeStage(f)
		},
	}
	cmd.Flags().BoolVar(&schema, "json-schema", false, "print the JSON schema of pipeline files, for editors")
	return cmd
}

func (a *app) listStages() error {
	t := newTable(a.out, "stages")
	t.AppendHeader(table.Row{"stage", "what it does", "in", "out"})
	for _, f := range a.reg.Factories() {
		ports, err := f.Ports()
		if err != nil {
			return err
		}
		var in, out []string
		for _, p := range ports {
			switch p.Direction {
			case "in", "borrow":
				in = append(in, p.Name)
			default:
				out = append(out, p.Name)
			}
		}
		t.AppendRow(table.Row{f.Type, f.Summary, strings.Join(in, ", "), strings.Join(out, ", ")})
	}
	t.Render()
	return nil
}

func (a *app) describeStage(f pipeline.Factory) error {
	ports, err := f.Ports()
	if err != nil {
		return err
	}
	t := newTable(a.out, f.Type+": "+f.Summary)
	t.AppendHeader(table.Row{"port", "direction", "values", "needs", "adds"})
	for _, p := range ports {
		t.AppendRow(table.Row{p.Name, p.Direction, p.Type, strings.Join(p.Needs, ", "), strings.Join(p.Adds, ", ")})
	}
	t.Render()
	return a.printConfig(f)
}

// printConfig prints the defaults of a stage as YAML, with what each key means.
func (a *app) printConfig(f pipeline.Factory) error {
	docs := map[string]string{}
	for _, k := range f.Keys() {
		docs[k.Path] = k.Doc
	}
	var defaults yaml.Node
	if err := defaults.Encode(f.Default()); err != nil {
		return fmt.Errorf("defaults of %s: %w", f.Type, err)
	}
	comment(&defaults, "", docs)
	b, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: f.Type}, &defaults}})
	if err != nil {
		return fmt.Errorf("defaults of %s: %w", f.Type, err)
	}
	_, err = fmt.Fprintf(a.out, "\n%s", b)
	return err
}

// comment puts the descriptions of keys behind their values.
func comment(n *yaml.Node, place string, docs map[string]string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if value.Kind == yaml.MappingNode {
			comment(value, place+key.Value+".", docs)
			continue
		}
		if value.Kind == yaml.SequenceNode {
			value.Style = yaml.FlowStyle
		}
		value.LineComment = docs[place+key.Value]
	}
}
