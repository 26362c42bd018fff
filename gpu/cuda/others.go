//go:build cuda

package cuda

import (
	"fmt"
	"strings"

	"gorgonia.org/cu"

	"longship/gpu/cuda/shim"
)

// heldByOthers notes how much of the card other processes have, before this one
// takes any, and says so for the text of errors. Where NVML does not tell (it
// is part of the driver, but containers may lack it) others counts as nothing.
func (d *Device) heldByOthers() string {
	var at [3]int // PCI domain, bus, device
	for i, a := range []cu.DeviceAttribute{cu.PciDomainID, cu.PciBusID, cu.PciDeviceID} {
		v, err := d.card.Attribute(a)
		if err != nil {
			return "the driver does not say where it is"
		}
		at[i] = v
	}
	usage, err := shim.CardUsage(fmt.Sprintf("%08x:%02x:%02x.0", at[0], at[1], at[2]))
	if err != nil {
		return "nvidia-smi shows which processes use it"
	}
	d.others = usage.Used
	var ids []string
	for _, id := range usage.Processes {
		ids = append(ids, fmt.Sprint(id))
	}
	if len(ids) == 0 {
		return fmt.Sprintf("%d bytes are in use, by no process that this one may see", usage.Used)
	}
	return fmt.Sprintf("%d bytes are in use, by processes %s", usage.Used, strings.Join(ids, ", "))
}
