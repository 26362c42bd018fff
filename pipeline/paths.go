package pipeline

import (
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

var pathType = reflect.TypeFor[Path]()

// windowsAbs is an absolute Windows path, which is left alone everywhere.
var windowsAbs = regexp.MustCompile(`^([A-Za-z]:[\\/]|\\\\)`)

// resolvePaths makes every Path below the pointer v absolute.
func resolvePaths(v reflect.Value, dir string) {
	eachPath(v, func(p Path) Path {
		switch {
		case p == "" || filepath.IsAbs(string(p)):
			return p
		case windowsAbs.MatchString(string(p)):
			return p
		}
		return Path(filepath.Join(dir, filepath.FromSlash(string(p))))
	})
}

// relativePaths undoes resolvePaths for paths below dir.
func relativePaths(v reflect.Value, dir string) {
	eachPath(v, func(p Path) Path {
		if !filepath.IsAbs(string(p)) {
			return p
		}
		rel, err := filepath.Rel(dir, string(p))
		if err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
			return p
		}
		return Path(filepath.ToSlash(rel))
	})
}

// eachPath replaces every Path in what v points to: in exported fields, lists
// and map values, at any depth.
func eachPath(v reflect.Value, change func(Path) Path) {
	if v.Type() == pathType {
		v.SetString(string(change(Path(v.String()))))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			eachPath(v.Elem(), change)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				eachPath(v.Field(i), change)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			eachPath(v.Index(i), change)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			e := reflect.New(v.Type().Elem()).Elem()
			e.Set(v.MapIndex(k))
			eachPath(e, change)
			v.SetMapIndex(k, e)
		}
	}
}
