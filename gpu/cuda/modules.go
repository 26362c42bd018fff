//go:build cuda

package cuda

import (
	"fmt"
	"regexp"
	"strconv"

	"gorgonia.org/cu"

	"longship/gpu/cuda/kernels"
)

// modules are the PTX files, compiled by the driver for the card when the device
// is opened.
var modules = kernels.Modules()

var (
	ptxVersion = regexp.MustCompile(`(?m)^\.version (\d+)\.(\d+)`)
	ptxEntry   = regexp.MustCompile(`(?m)^\s*(?:\.visible )?\.entry (\w+)\(`)
)

// ptxNeed is what it takes to compile a version of PTX: the CUDA version that
// the driver supports, and the first driver that does.
type ptxNeed struct {
	cuda   int
	driver string
}

// ptxNeeds is by version. Source: PTX ISA, release notes.
var ptxNeeds = map[string]ptxNeed{
	"7.8": {11080, "520"},
	"8.0": {12000, "525"},
	"8.1": {12010, "530"},
}

// suits says why the kernels cannot run on this card with this driver, nil where they can.
func (d *Device) suits() error {
	capability := d.capability()
	if capability < minCapability {
		return fmt.Errorf("compute capability %s, the kernels need %d.%d (RTX 30 series, A100) or newer", d.info.Libraries["compute"], minCapability/10, minCapability%10)
	}
	have := cu.Version()
	for _, m := range modules {
		if m.Needs > capability {
			continue
		}
		v := ptxVersion.FindStringSubmatch(m.PTX)
		if v == nil {
			return fmt.Errorf("%s has no .version", m.Name)
		}
		need, ok := ptxNeeds[v[1]+"."+v[2]]
		if !ok {
			return fmt.Errorf("%s is PTX %s.%s, which this program does not know", m.Name, v[1], v[2])
		}
		if have < need.cuda {
			return fmt.Errorf("the driver supports CUDA %s, the kernels need %s: install driver %s or newer", cudaVersion(have), cudaVersion(need.cuda), need.driver)
		}
	}
	return nil
}

// capability is the card's compute capability, 80 for 8.0.
func (d *Device) capability() int {
	digits := regexp.MustCompile(`\D`).ReplaceAllString(d.info.Libraries["compute"], "")
	n, _ := strconv.Atoi(digits) // two or three digits, as describe wrote them
	return n
}

// loadModules compiles the PTX and finds its functions.
func (d *Device) loadModules() error {
	for _, m := range modules {
		if m.Needs > d.capability() {
			continue
		}
		mod, err := cu.LoadData(m.PTX)
		if err != nil {
			return fmt.Errorf("compile %s: %w", m.Name, explain(err))
		}
		for _, e := range ptxEntry.FindAllStringSubmatch(m.PTX, -1) {
			fn, err := mod.Function(e[1])
			if err != nil {
				return fmt.Errorf("%s: function %s: %w", m.Name, e[1], explain(err))
			}
			d.functions[e[1]] = &function{name: e[1], handle: fn}
		}
	}
	return nil
}
