package stages_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"

	"longship/pipeline"
	"longship/stages"
)

// update has the tests write what they compare: `go generate ./stages`.
var update = flag.Bool("update", false, "write the generated documents")

// generated compares a file with what the code says, or writes it.
func generated(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, strings.ReplaceAll(string(got), "\r\n", "\n")); d != "" {
		t.Errorf("%s is not what the code says: run `go generate ./stages`\n%s", path, d)
	}
}

// stages/DEFAULTS.md lists every key.
func TestGeneratedDefaults(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Every key and its default\n\n")
	b.WriteString("Written by `go generate ./stages` from the code; `longship stages NAME` prints the same.\n\n")
	b.WriteString("Every stage also has `id`, by default its type, and `in`, the earlier stages that it takes its values from, by default the nearest.\n\n")
	b.WriteString("## Above the stages\n\n")
	table(t, &b, pipeline.HeadKeys())
	for _, f := range stages.Builtin() {
		fmt.Fprintf(&b, "\n## %s\n\nIt %s.\n\n", f.Type, f.Summary)
		table(t, &b, f.Keys())
	}
	generated(t, "DEFAULTS.md", b.String())
}

func table(t *testing.T, b *strings.Builder, keys []pipeline.KeyInfo) {
	t.Helper()
	b.WriteString("| key | default | meaning |\n|---|---|---|\n")
	for _, k := range keys {
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", k.Path, inYAML(t, k.Default), strings.ReplaceAll(k.Doc, "|", `\|`))
	}
}

// inYAML is a value as one would write it.
func inYAML(t *testing.T, v any) string {
	t.Helper()
	var n yaml.Node
	if err := n.Encode(v); err != nil {
		t.Fatal(err)
	}
	if n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
	text, err := yaml.Marshal(&n)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(text))
}

// A stage's README may tell of its keys in a table: then of all, with their defaults.
func TestTablesOfKeys(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| `?([^`|]*?)`? \\| .* \\|$")
	for _, f := range stages.Builtin() {
		text, err := os.ReadFile(filepath.Join(f.Type, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		_, body, found := strings.Cut(string(text), "| key | default | meaning |")
		if !found {
			continue
		}
		body, _, _ = strings.Cut(body, "\n\n")
		told, want := map[string]string{}, map[string]string{}
		for _, m := range row.FindAllStringSubmatch(body, -1) {
			told[m[1]] = m[2]
		}
		for _, k := range f.Keys() {
			want[k.Path] = inYAML(t, k.Default)
		}
		if d := cmp.Diff(want, told); d != "" {
			t.Errorf("%s/README.md:\n%s", f.Type, d)
		}
	}
}

// schema is where editors find the schema that the examples name.
const schema = "../examples/pipeline.schema.json"

// The schema beside the examples is the program's, every example names it and
// keeps to it.
func TestGeneratedSchema(t *testing.T) {
	reg, err := pipeline.NewRegistry(stages.Builtin()...)
	if err != nil {
		t.Fatal(err)
	}
	src, err := reg.Schema()
	if err != nil {
		t.Fatal(err)
	}
	generated(t, schema, string(src)+"\n")
	s := compile(t, src)
	examples, err := filepath.Glob("../examples/*/*.yaml")
	if err != nil || len(examples) == 0 {
		t.Fatalf("%d examples, error %v", len(examples), err)
	}
	for _, path := range examples {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "go.mod")); err == nil {
			continue // a module of its own, with stages of its own
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := strings.Cut(string(text), "\n")
		if want := "# yaml-language-server: $schema=../pipeline.schema.json"; strings.TrimSpace(line) != want {
			t.Errorf("%s does not begin with %q", path, want)
		}
		var v any
		if err := yaml.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func compile(t *testing.T, schema []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("pipeline.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("pipeline.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What documents show of pipelines keeps to the schema: whole files, lists of
// stages, and heads.
func TestPipelinesInDocuments(t *testing.T) {
	src, err := os.ReadFile(schema)
	if err != nil {
		t.Fatal(err)
	}
	s := compile(t, src)
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")
	seen := 0
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range blocks.FindAllStringSubmatch(strings.ReplaceAll(string(text), "\r\n", "\n"), -1) {
			seen++
			var v any
			if err := yaml.Unmarshal([]byte(m[1]), &v); err != nil {
				t.Errorf("%s: %v in\n%s", path, err, m[1])
				continue
			}
			switch part := v.(type) {
			case []any:
				v = map[string]any{"stages": part}
			case map[string]any:
				if part["stages"] == nil {
					part["stages"] = []any{map[string]any{"cached": map[string]any{"list": "run/dataset"}}}
				}
			}
			if err := s.Validate(v); err != nil {
				t.Errorf("%s: %v in\n%s", path, err, m[1])
			}
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Errorf("%d blocks of YAML, error %v", seen, err)
	}
}

// README.md has a table of the stages, between marks.
func TestGeneratedReadme(t *testing.T) {
	const path = "../README.md"
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("there is no README.md")
	}
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("<!-- stages -->\n| stage | what it does |\n|---|---|\n")
	for _, f := range stages.Builtin() {
		fmt.Fprintf(&b, "| [%s](stages/%s/README.md) | %s |\n", f.Type, f.Type, f.Summary)
		if _, err := os.Stat(filepath.Join(f.Type, "README.md")); err != nil {
			t.Error(err)
		}
	}
	b.WriteString("<!-- /stages -->")
	between := regexp.MustCompile(`(?s)<!-- stages -->.*<!-- /stages -->`)
	readme := strings.ReplaceAll(string(text), "\r\n", "\n")
	if !between.MatchString(readme) {
		t.Fatalf("%s has no table of the stages between <!-- stages --> and <!-- /stages -->", path)
	}
	generated(t, path, between.ReplaceAllLiteralString(readme, b.String()))
}
