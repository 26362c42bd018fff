package pipeline

import (
	"reflect"
	"strings"
	"unicode"
)

// field is a key of a config struct.
type field struct {
	key   string
	index []int
	typ   reflect.Type
	doc   string
}

// fieldsOf lists the keys of a struct type in order: exported fields by their
// yaml tag, lower case without one; those of `yaml:",inline"` structs in place.
func fieldsOf(t reflect.Type) []field {
	var list []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported():
			continue
		case strings.Contains(opts, "inline") && f.Type.Kind() == reflect.Struct:
			for _, in := range fieldsOf(f.Type) {
				in.index = append([]int{i}, in.index...)
				list = append(list, in)
			}
			continue
		case name == "":
			name = strings.ToLower(f.Name)
		}
		list = append(list, field{name, f.Index, f.Type, f.Tag.Get("doc")})
	}
	return list
}

// pathParts splits a place in a config, "a.b[2].c" or "a.b.2.c".
func pathParts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool {
		return r == '.' || r == '[' || r == ']' || unicode.IsSpace(r)
	})
}
