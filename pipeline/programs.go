package pipeline

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Program is a program that brings stages of its own and runs them in a process
// of its own, as the head of a pipeline names it.
type Program struct {
	Path        Path          `yaml:"path" doc:"the program; or a folder, of which every program is meant" jsonschema:"required"`
	Interpreter string        `yaml:"interpreter" doc:"what runs it, found on PATH: python3"`
	Args        []string      `yaml:"args" doc:"its arguments"`
	SHA256      string        `yaml:"sha256" doc:"checksum that the file at path must have, 64 hexadecimal digits"`
	Restart     int           `yaml:"restart" doc:"how often each of its stages may be started again in a run when the program died; nothing is lost or doubled"`
	OnFailure   string        `yaml:"on_failure" doc:"stop: the run ends when the program fails for good; pass: its stages hand on what comes as it is" jsonschema:"enum=stop,enum=pass"`
	Timeout     time.Duration `yaml:"timeout" doc:"how long a stage may be silent over one item; 10m where left out" jsonschema:"type=string"`
	Memory      string        `yaml:"memory" doc:"what the program may take of the machine's memory, such as 4GiB; no limit where left out"`
}

// Programs knows how to start programs; package plugins/host has one.
type Programs interface {
	// Factories returns the factories of a program's stages. The error joins all
	// that is wrong; a FieldError is a fault of that key of the program.
	Factories(p Program, log hclog.Logger) ([]Factory, error)
}

// programs adds the stages of the programs that the head names to the registry.
// Where one cannot be had, stage types that are not known are no fault of their own.
func (l *loader) programs(with Programs) {
	var more []Factory
	for i, p := range l.env.Plugins {
		key := fmt.Sprintf("plugins.%d", i)
		if with == nil {
			l.faults.add(l.placeOf(l.root, key), "plugins: whoever reads this pipeline starts no programs")
			l.lacking = true
			continue
		}
		found, err := with.Factories(p, l.log)
		if err != nil {
			l.lacking = true
			l.programFault(key, err)
		}
		more = append(more, found...)
	}
	if len(more) == 0 {
		return
	}
	reg, err := NewRegistry(append(l.reg.Factories(), more...)...)
	if err != nil {
		l.lacking = true
		l.faults.add(l.placeOf(l.root, "plugins"), "plugins: %v", err)
		return
	}
	l.reg = reg
}

func (l *loader) programFault(key string, err error) {
	if many := joined(err); many != nil {
		for _, e := range many {
			l.programFault(key, e)
		}
		return
	}
	if fe := (*FieldError)(nil); errors.As(err, &fe) {
		l.faults.list = append(l.faults.list, Fault{l.placeOf(l.root, key+"."+fe.Path), key + "." + fe.Error(), err})
		return
	}
	l.faults.list = append(l.faults.list, Fault{l.placeOf(l.root, key), err.Error(), err})
}
