package pipeline

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// decoder fills config structs from a tree, strictly: an unknown key, a value of
// the wrong type or out of range is a fault, and it goes on to find the next.
// A value left empty keeps the default.
type decoder struct {
	*tree
	reserved map[string]bool // keys of the outermost mapping that are not the struct's
}

var (
	yamlUnmarshaler = reflect.TypeFor[yaml.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	durationType    = reflect.TypeFor[time.Duration]()
)

// value decodes n into v, which is settable. path names the place in messages.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		if v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v.SetZero() // nothing is a value of theirs
		}
		return
	}
	if d.custom(n, v, path) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		d.value(n, v.Elem(), path)
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Map:
		d.mapping(n, v, path)
	case reflect.Slice:
		d.list(n, v, path)
	case reflect.Interface:
		var x any
		if err := n.Decode(&x); err != nil {
			d.faults.add(d.place(n), "%s: %v", path, err)
			return
		}
		v.Set(reflect.ValueOf(&x).Elem())
	default:
		d.scalar(n, v, path)
	}
}

// custom decodes types that decode themselves.
func (d *decoder) custom(n *yaml.Node, v reflect.Value, path string) bool {
	p := v.Addr()
	switch {
	case p.Type().Implements(yamlUnmarshaler):
		if err := p.Interface().(yaml.Unmarshaler).UnmarshalYAML(n); err != nil {
			d.faults.add(d.place(n), "%s: %s", path, trimYAML(err))
		}
	case p.Type().Implements(textUnmarshaler) && n.Kind == yaml.ScalarNode:
		if err := p.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Value)); err != nil {
			d.faults.add(d.place(n), "%s: %v", path, err)
		}
	case v.Type() == durationType && n.Kind == yaml.ScalarNode:
		t, err := time.ParseDuration(n.Value)
		if err != nil {
			d.wrong(n, path, "a duration such as 90s or 1h30m")
		}
		v.SetInt(int64(t))
	default:
		return false
	}
	return true
}

// trimYAML takes the yaml package's prefix and its own positions off a message.
func trimYAML(err error) string {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	msg = strings.TrimPrefix(msg, "unmarshal errors:\n  ")
	return strings.ReplaceAll(msg, "\n", ";")
}

func (d *decoder) wrong(n *yaml.Node, path, want string) {
	d.faults.add(d.place(n), "%s: expected %s, not %s", path, want, kindName(n))
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, path, "a mapping of its keys")
		return
	}
	reserved := d.reserved
	d.reserved = nil
	byKey := map[string]field{}
	var keys []string
	for _, f := range fieldsOf(v.Type()) {
		byKey[f.key] = f
		keys = append(keys, f.key)
	}
	for k := range reserved {
		keys = append(keys, k)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		f, ok := byKey[key.Value]
		switch {
		case ok:
			d.value(n.Content[i+1], v.FieldByIndex(f.index), join(path, key.Value))
		case !reserved[key.Value]:
			d.faults.add(d.place(key), "%sunknown key %q%s", prefix(path), key.Value, hint(key.Value, keys))
		}
	}
}

func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind != yaml.MappingNode {
		d.wrong(n, path, "a mapping")
		return
	}
	t := v.Type()
	if t.Key().Kind() != reflect.String {
		panic(fmt.Sprintf("pipeline: config map %v: keys must be strings", t))
	}
	m := reflect.MakeMap(t)
	for i := 0; i+1 < len(n.Content); i += 2 {
		e := reflect.New(t.Elem()).Elem()
		d.value(n.Content[i+1], e, join(path, n.Content[i].Value))
		m.SetMapIndex(reflect.ValueOf(n.Content[i].Value).Convert(t.Key()), e)
	}
	v.Set(m)
}

// list decodes a list; one plain value is a list of one.
func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	items := n.Content
	switch n.Kind {
	case yaml.MappingNode:
		d.wrong(n, path, "a list")
		return
	case yaml.ScalarNode:
		items = []*yaml.Node{n}
	}
	s := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", path, i)
		if n.Kind == yaml.ScalarNode {
			at = path
		}
		d.value(item, s.Index(i), at)
	}
	v.Set(s)
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	want := scalarName(v.Kind())
	if n.Kind != yaml.ScalarNode {
		d.wrong(n, path, want)
		return
	}
	tag := n.ShortTag()
	text := strings.ReplaceAll(n.Value, "_", "")
	switch kind := v.Kind(); {
	case kind == reflect.String:
		v.SetString(n.Value)
		return
	case kind == reflect.Bool:
		var b bool // yes, no, on and off are truth values where one is expected
		if n.Decode(&b) == nil {
			v.SetBool(b)
			return
		}
	case v.CanInt() && tag == "!!int":
		if i, err := strconv.ParseInt(text, 0, 64); err == nil && !v.OverflowInt(i) {
			v.SetInt(i)
			return
		}
		want = fmt.Sprintf("a whole number of %d bits", v.Type().Bits())
	case v.CanUint() && tag == "!!int":
		if u, err := strconv.ParseUint(text, 0, 64); err == nil && !v.OverflowUint(u) {
			v.SetUint(u)
			return
		}
		want = fmt.Sprintf("a whole number of %d bits, 0 or more", v.Type().Bits())
	case (v.CanInt() || v.CanUint()) && tag == "!!float":
		// 1e3 is a whole number to a reader
		if f, ok := number(n); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			d.whole(n, v, path, int64(f))
			return
		}
	case v.CanFloat() && (tag == "!!float" || tag == "!!int"):
		if f, ok := number(n); ok && !v.OverflowFloat(f) {
			v.SetFloat(f)
			return
		}
	}
	d.wrong(n, path, want)
}

func (d *decoder) whole(n *yaml.Node, v reflect.Value, path string, i int64) {
	switch {
	case v.CanInt() && !v.OverflowInt(i):
		v.SetInt(i)
	case v.CanUint() && i >= 0 && !v.OverflowUint(uint64(i)):
		v.SetUint(uint64(i))
	default:
		d.wrong(n, path, scalarName(v.Kind())+" in range")
	}
}

// number returns the value of a scalar that YAML calls a number.
func number(n *yaml.Node) (float64, bool) {
	var f float64
	return f, n.Decode(&f) == nil
}

func scalarName(k reflect.Kind) string {
	switch {
	case k == reflect.Bool:
		return "true or false"
	case k == reflect.String:
		return "a text"
	case k >= reflect.Int && k <= reflect.Int64:
		return "a whole number"
	case k >= reflect.Uint && k <= reflect.Uintptr:
		return "a whole number, 0 or more"
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	}
	panic(fmt.Sprintf("pipeline: a config cannot have a field of kind %v", k))
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}
