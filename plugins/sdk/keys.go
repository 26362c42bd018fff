package sdk

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"longship/pipeline"
	"longship/plugins/proto"
)

// maxDepth bounds a config that contains itself.
const maxDepth = 16

// keysOf describes the keys of the config that cfg points to, by its tags.
func keysOf(cfg any) ([]*proto.Key, error) { return structKeys(reflect.TypeOf(cfg).Elem(), 0) }

func structKeys(t reflect.Type, depth int) (keys []*proto.Key, err error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("config type %v is nested too deeply", t)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case name == "-" || !f.IsExported():
			continue
		case strings.Contains(opts, "inline") && f.Type.Kind() == reflect.Struct:
			in, err := structKeys(f.Type, depth+1)
			if err != nil {
				return nil, err
			}
			keys = append(keys, in...)
			continue
		case name == "":
			name = strings.ToLower(f.Name)
		}
		k, err := keyOf(f.Type, depth)
		if err != nil {
			return nil, fmt.Errorf("config key %s: %w", name, err)
		}
		k.Name, k.Doc, k.Schema = name, f.Tag.Get("doc"), f.Tag.Get("jsonschema")
		keys = append(keys, k)
	}
	return keys, nil
}

var (
	pathType     = reflect.TypeFor[pipeline.Path]()
	durationType = reflect.TypeFor[time.Duration]()
)

// keyOf describes a type. What reads itself from YAML is "any": longship hands
// it on as it was written, and the program finds what is wrong with it.
func keyOf(t reflect.Type, depth int) (*proto.Key, error) {
	ptr := reflect.PointerTo(t)
	_, yamlItself := ptr.MethodByName("UnmarshalYAML")
	_, textItself := ptr.MethodByName("UnmarshalText")
	k := &proto.Key{}
	switch kind := t.Kind(); {
	case t == pathType:
		k.Kind = "path"
	case t == durationType:
		k.Kind = "duration"
	case yamlItself || textItself || kind == reflect.Interface:
		k.Kind = "any"
	case kind == reflect.Pointer:
		elem, err := keyOf(t.Elem(), depth+1)
		if err != nil {
			return nil, err
		}
		elem.Optional = true
		return elem, nil
	case kind == reflect.String:
		k.Kind = "text"
	case kind == reflect.Bool:
		k.Kind = "bool"
	case reflect.Int <= kind && kind <= reflect.Int64:
		k.Kind, k.Bits = "int", uint32(t.Bits())
	case reflect.Uint <= kind && kind <= reflect.Uint64:
		k.Kind, k.Bits = "uint", uint32(t.Bits())
	case kind == reflect.Float32 || kind == reflect.Float64:
		k.Kind, k.Bits = "float", uint32(t.Bits())
	case kind == reflect.Struct:
		keys, err := structKeys(t, depth+1)
		k.Kind, k.Keys = "struct", keys
		return k, err
	case kind == reflect.Slice, kind == reflect.Map && t.Key().Kind() == reflect.String:
		k.Kind = map[reflect.Kind]string{reflect.Slice: "list", reflect.Map: "map"}[kind]
		elem, err := keyOf(t.Elem(), depth+1)
		k.Elem = elem
		return k, err
	default:
		return nil, fmt.Errorf("type %v cannot be written in YAML", t)
	}
	return k, nil
}
