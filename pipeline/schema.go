package pipeline

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/invopop/jsonschema"
)

// Schema returns the JSON schema of pipeline files with the registry's stages,
// for editors. What it refuses the loader refuses; the loader refuses more, such
// as faults of the wiring. Descriptions come from the fields' `doc` tags, limits
// from their `jsonschema` tags.
func (r *Registry) Schema() ([]byte, error) {
	h := defaultHead("")
	root := configSchema(&h)
	root.Version = jsonschema.Version
	root.Title = "Longship pipeline"
	root.Properties.Set("stages", r.stagesSchema())
	root.Required = []string{"stages"}
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write JSON schema: %w", err)
	}
	return b, nil
}

// stagesSchema is the schema of the list: each entry the type alone, or one key,
// the type, with its config.
func (r *Registry) stagesSchema() *jsonschema.Schema {
	one := uint64(1)
	entry := &jsonschema.Schema{
		Type: "object", MinProperties: &one, MaxProperties: &one,
		Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema,
	}
	alone := &jsonschema.Schema{Type: "string"}
	for _, f := range r.factories {
		s := configSchema(f.Default())
		s.Description = f.Summary
		s.Properties.Set("id", &jsonschema.Schema{Type: "string", Pattern: idPattern.String(), Description: "id of the stage; its type by default"})
		s.Properties.Set("in", inSchema())
		body := s
		if len(s.Required) == 0 {
			alone.Enum = append(alone.Enum, f.Type)
			body = &jsonschema.Schema{Description: f.Summary, AnyOf: []*jsonschema.Schema{s, {Type: "null"}}}
		}
		entry.Properties.Set(f.Type, body)
	}
	return &jsonschema.Schema{
		Type: "array", MinItems: &one, Description: "the stages, sources first",
		Items: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{entry, alone}},
	}
}

func inSchema() *jsonschema.Schema {
	names := func() []*jsonschema.Schema {
		return []*jsonschema.Schema{{Type: "string"}, {Type: "array", Items: &jsonschema.Schema{Type: "string"}}}
	}
	byPort := &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{AnyOf: names()}}
	return &jsonschema.Schema{
		Description: "earlier stages that this one takes its values from: a, [a, b], or by port {port: [a, b]}; the nearest by default",
		AnyOf:       append(names(), byPort),
	}
}

// configSchema is the schema of the struct that cfg points to, its values as defaults.
func configSchema(cfg any) *jsonschema.Schema {
	r := jsonschema.Reflector{
		Anonymous: true, DoNotReference: true, ExpandedStruct: true,
		FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true,
		LookupComment: func(t reflect.Type, name string) string {
			if t.Kind() != reflect.Struct {
				return ""
			}
			f, _ := t.FieldByName(name) // the zero field for the type itself
			return f.Tag.Get("doc")
		},
	}
	s := r.Reflect(cfg)
	s.Version = ""
	describe(s, reflect.ValueOf(cfg).Elem())
	return s
}

// describe puts the defaults of a struct into its schema, and lets one plain
// value stand for a list of one, as the decoder does.
func describe(s *jsonschema.Schema, v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		p, ok := s.Properties.Get(f.key)
		if !ok {
			continue
		}
		fv := v.FieldByIndex(f.index)
		switch {
		case fv.Kind() == reflect.Struct && p.Properties != nil:
			describe(p, fv)
			continue
		case p.Type == "array" && p.Items != nil && p.Items.Type != "" && p.Items.Type != "object":
			list := &jsonschema.Schema{Type: p.Type, Items: p.Items}
			p.Type, p.Items, p.AnyOf = "", nil, []*jsonschema.Schema{list, list.Items}
		}
		if p.Default == nil && !fv.IsZero() {
			p.Default = fv.Interface()
		}
	}
}
