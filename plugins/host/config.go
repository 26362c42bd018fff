package host

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"longship/pipeline"
	"longship/plugins/proto"
)

// configType makes a struct type of the keys that a program describes, so that
// all that is done with the config of a stage in process can be done with it.
func configType(keys []*proto.Key, depth int) (reflect.Type, error) {
	if depth > 16 {
		return nil, fmt.Errorf("its config is nested too deeply")
	}
	var fields []reflect.StructField
	seen := map[string]bool{}
	for i, k := range keys {
		if k.Name == "" || seen[k.Name] {
			return nil, fmt.Errorf("its config has the key %q twice, or one without a name", k.Name)
		}
		seen[k.Name] = true
		t, err := keyType(k, depth)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", k.Name, err)
		}
		tag := fmt.Sprintf("yaml:%s doc:%s", strconv.Quote(k.Name), strconv.Quote(k.Doc))
		schema := k.Schema
		if t == reflect.TypeFor[time.Duration]() && schema == "" {
			schema = "type=string"
		}
		if schema != "" {
			tag += " jsonschema:" + strconv.Quote(schema)
		}
		fields = append(fields, reflect.StructField{Name: "Key" + strconv.Itoa(i), Type: t, Tag: reflect.StructTag(tag)})
	}
	return reflect.StructOf(fields), nil
}

func keyType(k *proto.Key, depth int) (reflect.Type, error) {
	t, err := plainType(k, depth)
	if err == nil && k.Optional {
		t = reflect.PointerTo(t)
	}
	return t, err
}

func plainType(k *proto.Key, depth int) (reflect.Type, error) {
	sized := func(of map[uint32]reflect.Type) (reflect.Type, error) {
		bits := k.Bits
		if bits == 0 {
			bits = 64
		}
		t, ok := of[bits]
		if !ok {
			return nil, fmt.Errorf("there is no %s of %d bits", k.Kind, bits)
		}
		return t, nil
	}
	switch k.Kind {
	case "text":
		return reflect.TypeFor[string](), nil
	case "path":
		return reflect.TypeFor[pipeline.Path](), nil
	case "bool":
		return reflect.TypeFor[bool](), nil
	case "duration":
		return reflect.TypeFor[time.Duration](), nil
	case "any":
		return reflect.TypeFor[any](), nil
	case "int":
		return sized(map[uint32]reflect.Type{8: reflect.TypeFor[int8](), 16: reflect.TypeFor[int16](), 32: reflect.TypeFor[int32](), 64: reflect.TypeFor[int64]()})
	case "uint":
		return sized(map[uint32]reflect.Type{8: reflect.TypeFor[uint8](), 16: reflect.TypeFor[uint16](), 32: reflect.TypeFor[uint32](), 64: reflect.TypeFor[uint64]()})
	case "float":
		return sized(map[uint32]reflect.Type{32: reflect.TypeFor[float32](), 64: reflect.TypeFor[float64]()})
	case "struct":
		return configType(k.Keys, depth+1)
	case "list", "map":
		if k.Elem == nil {
			return nil, fmt.Errorf("the %s does not say of what", k.Kind)
		}
		elem, err := keyType(k.Elem, depth+1)
		if err != nil {
			return nil, err
		}
		if k.Kind == "map" {
			return reflect.MapOf(reflect.TypeFor[string](), elem), nil
		}
		return reflect.SliceOf(elem), nil
	}
	return nil, fmt.Errorf("there is no kind of key %q", k.Kind)
}
