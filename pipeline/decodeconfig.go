package pipeline

import (
	"errors"
	"fmt"
	"reflect"

	"gopkg.in/yaml.v3"
)

// DecodeConfig fills a config, a pointer to a struct, from YAML that says every
// key, as strictly as a pipeline file is read. Nothing is expanded in it: it is
// a config that was read before, on its way to another process. It is not validated.
func DecodeConfig(src []byte, cfg any) error {
	var doc yaml.Node
	if err := yaml.Unmarshal(src, &doc); err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	d := &decoder{tree: &tree{faults: &faults{}, option: map[*yaml.Node]string{}}}
	d.structure(doc.Content[0], reflect.ValueOf(cfg).Elem(), "")
	var errs []error
	for _, f := range d.faults.list {
		errs = append(errs, errors.New(f.Msg))
	}
	return errors.Join(errs...)
}
