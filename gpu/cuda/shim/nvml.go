//go:build cuda

package shim

/*
#include <stdlib.h>
#include "nvml.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"unsafe"
)

// Usage is what processes have of a card's memory, in bytes.
type Usage struct {
	Used      int64
	Processes []int // their ids, as far as the system shows them
}

// CardUsage asks NVML about the card at a PCI address like "00000000:65:00.0".
func CardUsage(pci string) (Usage, error) {
	name := "libnvidia-ml.so.1"
	if runtime.GOOS == "windows" {
		name = "nvml.dll"
	}
	lib, err := Open(name)
	if err != nil {
		return Usage{}, err
	}
	var f C.nvml_functions
	for name, field := range map[string]unsafe.Pointer{
		"nvmlInit_v2":                             unsafe.Pointer(&f.init),
		"nvmlDeviceGetHandleByPciBusId_v2":        unsafe.Pointer(&f.by_pci),
		"nvmlDeviceGetMemoryInfo_v2":              unsafe.Pointer(&f.memory),
		"nvmlDeviceGetComputeRunningProcesses_v3": unsafe.Pointer(&f.processes),
		"nvmlShutdown":                            unsafe.Pointer(&f.shutdown),
	} {
		at, err := lib.Symbol(name)
		if err != nil {
			return Usage{}, err
		}
		*(*unsafe.Pointer)(field) = at
	}
	bus := C.CString(pci)
	defer C.free(unsafe.Pointer(bus))
	var memory C.nvml_memory
	var list [32]C.nvml_process
	count := C.uint(len(list))
	if status := C.nvml_usage(&f, bus, &memory, &count, &list[0]); status != 0 {
		return Usage{}, fmt.Errorf("NVML: status %d", int(status))
	}
	u := Usage{Used: int64(memory.used)}
	for _, p := range list[:min(int(count), len(list))] {
		u.Processes = append(u.Processes, int(p.pid))
	}
	return u, nil
}
