package pipeline

import (
	"bytes"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

func TestSchema(t *testing.T) {
	src, err := stock(t).Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(src))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("pipeline.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("pipeline.json")
	if err != nil {
		t.Fatal(err)
	}
	for src, ok := range map[string]bool{
		full: true,
		"name: x\nmodel: {path: m}\nseed: 3\nstages: [dataset, {latents: }, textembed: {in: {samples: [dataset, latents]}, id: a}]": true,
		"stages: [dataset: {sizes: 512}]":         true,
		"stages: [dataset: {sizes: [512, 768]}]":  true,
		"stages: [dataset: {network: {rank: 3}}]": true,
		"stages: []":                             false,
		"seed: 1":                                false,
		"stages: [datasets]":                     false,
		"stages: [{dataset: {}, latents: {}}]":   false,
		"stages: [dataset: {foldr: x}]":          false,
		"stages: [dataset: {network: {rnk: 3}}]": false,
		"stages: [dataset: {steps: many}]":       false,
		"nmae: x\nstages: [dataset]":             false,
		"stages: [dataset: {id: 3}]":             false,
	} {
		var v any
		if err := yaml.Unmarshal([]byte(src), &v); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); (err == nil) != ok {
			t.Errorf("%q: valid %v, want %v: %v", src, err == nil, ok, err)
		}
	}
	for _, want := range []string{`"description": "where the images are"`, `"default": 0.001`, `"default": "cache"`, `"a fake dataset"`} {
		if !strings.Contains(string(src), want) {
			t.Errorf("%s is missing", want)
		}
	}
}

func TestGraph(t *testing.T) {
	p := mustParse(t, strings.Replace(full, "- report", "- report: {id: curves}", 1))
	for format, want := range map[string][]string{
		"mermaid": {"flowchart LR\n", `s8["curves (report)"]`, `s1 -->|"pipeline.sample"| s2`, `s4 ==>|"*pipeline.weights"| s5`, `s6 -.->|"*pipeline.state"| s7`},
		"dot":     {"digraph pipeline {", `s8 [label="curves (report)"]`, `s1 -> s2 [label="pipeline.sample" style=solid]`, `s6 -> s7 [label="*pipeline.state" style=dashed]`},
	} {
		g, err := p.Graph(format)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			if !strings.Contains(g, w) {
				t.Errorf("%s: %q is missing in\n%s", format, w, g)
			}
		}
	}
	if _, err := p.Graph("png"); err == nil {
		t.Error("png was drawn")
	}
}
