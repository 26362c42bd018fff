//go:build cuda

#include "nvml.h"

int nvml_usage(const nvml_functions *f, const char *bus, nvml_memory *memory, unsigned *count, nvml_process *list) {
	void *device;
	memory->version = sizeof *memory | 2 << 24;
	int status = f->init();
	if (status) return status;
	status = f->by_pci(bus, &device);
	if (status == 0) status = f->memory(device, memory);
	// Who the processes are is for texts alone, and may be hidden.
	if (status == 0 && f->processes(device, count, list) != 0) *count = 0;
	f->shutdown();
	return status;
}
