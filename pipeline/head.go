package pipeline

import (
	"reflect"
	"regexp"
	"strings"
	"unicode"

	"github.com/dustin/go-humanize"
)

// head is the part of a pipeline file above `stages:`.
type head struct {
	Name    string    `yaml:"name" doc:"name of the run and of its files; the file's name without its ending by default"`
	Device  string    `yaml:"device" doc:"auto, cpu, cuda or cuda:N"`
	VRAM    string    `yaml:"vram" doc:"what all stages together may take of the device's memory: auto, or a size such as 23.5GiB"`
	Model   Model     `yaml:"model" doc:"the base model"`
	Plugins []Program `yaml:"plugins" doc:"programs that bring stages of their own; no others are started"`
	Output  Path      `yaml:"output" doc:"folder of results; the run's files are in the folder of its name there"`
	Seed    uint64    `yaml:"seed" doc:"seed of everything random"`
}

func defaultHead(name string) head {
	return head{Name: name, Device: "auto", VRAM: "auto", Plugins: []Program{}, Output: "output", Seed: 42}
}

// maxName bounds a run's name, in bytes: most file systems take 255, and the
// names of the run's files have more behind it.
const maxName = 180

// reservedName are names that Windows keeps for devices, with any ending.
var reservedName = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)

var devicePattern = regexp.MustCompile(`^(auto|cpu|cuda(:[0-9]+)?)$`)

// check reports each fault of the head at its key.
func (h *head) check(fault func(key, format string, args ...any)) {
	switch {
	case h.Name == "" || h.Name != strings.TrimSpace(h.Name) || strings.HasSuffix(h.Name, ".") ||
		strings.ContainsAny(h.Name, `/\:*?"<>|`) || strings.ContainsFunc(h.Name, unicode.IsControl):
		fault("name", `name: %q cannot name files: leave out / \ : * ? " < > | and a dot or space at the end`, h.Name)
	case len(h.Name) > maxName:
		fault("name", "name: it has %d bytes: names of files leave it %d", len(h.Name), maxName)
	case reservedName.MatchString(h.Name):
		fault("name", "name: %q is the name of a device on Windows, so no folder can have it", h.Name)
	}
	if !devicePattern.MatchString(h.Device) {
		fault("device", "device: %q is not auto, cpu, cuda or cuda:N", h.Device)
	}
	if h.VRAM != "auto" {
		if _, err := humanize.ParseBytes(h.VRAM); err != nil {
			fault("vram", "vram: %q is neither auto nor a size such as 23.5GiB", h.VRAM)
		}
	}
	if h.Output == "" {
		fault("output", "output: name a folder")
	}
}

// into sets the environment's share of the head, its paths made absolute.
func (h *head) into(e *Env) {
	resolvePaths(reflect.ValueOf(h), e.Dir)
	e.Name, e.Device, e.VRAM, e.Model, e.Plugins, e.Output, e.Seed = h.Name, h.Device, h.VRAM, h.Model, h.Plugins, string(h.Output), h.Seed
}
