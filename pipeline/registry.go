package pipeline

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"

	"github.com/hashicorp/go-hclog"
)

// Registry is a list of stage types. It does not change once made.
type Registry struct {
	factories []Factory
	byType    map[string]Factory
}

var typePattern = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// NewRegistry makes a registry. All faults are returned at once: a type twice,
// a type that is not lower_snake_case, a config that is no pointer to a struct or
// has one of the reserved keys id and in.
func NewRegistry(factories ...Factory) (*Registry, error) {
	r := &Registry{byType: map[string]Factory{}}
	var errs []error
	for i, f := range factories {
		if err := f.check(); err != nil {
			errs = append(errs, fmt.Errorf("factory %d, %q: %w", i+1, f.Type, err))
			continue
		}
		if _, ok := r.byType[f.Type]; ok {
			errs = append(errs, fmt.Errorf("factory %d, %q: the type is registered already", i+1, f.Type))
			continue
		}
		r.byType[f.Type] = f
		r.factories = append(r.factories, f)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return r, nil
}

func (f Factory) check() error {
	if !typePattern.MatchString(f.Type) {
		return errors.New("the type is not lower_snake_case")
	}
	if f.Default == nil || f.New == nil {
		return errors.New("it lacks Default or New")
	}
	t := reflect.TypeOf(f.Default())
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("its Default returns %v, not a pointer to a struct", t)
	}
	for _, fd := range fieldsOf(t.Elem()) {
		if fd.key == "id" || fd.key == "in" {
			return fmt.Errorf("its config has the key %q, which is reserved", fd.key)
		}
	}
	return nil
}

// Factories returns the factories in the order they were given.
func (r *Registry) Factories() []Factory { return slices.Clone(r.factories) }

// Lookup returns the factory of a type.
func (r *Registry) Lookup(typ string) (Factory, bool) {
	f, ok := r.byType[typ]
	return f, ok
}

func (r *Registry) types() []string {
	var types []string
	for _, f := range r.factories {
		types = append(types, f.Type)
	}
	return types
}

// typesWith returns the types that have a port of which has is true. A type
// whose New fails with its default config is left out.
func (r *Registry) typesWith(has func(Port) bool) []string {
	var types []string
	for _, f := range r.factories {
		stage, err := f.New(Settings{ID: f.Type, Log: hclog.NewNullLogger(), Env: &Env{}}, f.Default())
		if err != nil {
			continue
		}
		for _, p := range stage.Ports() {
			if has(p) {
				types = append(types, f.Type)
				break
			}
		}
	}
	return types
}
