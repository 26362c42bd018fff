// The part of NVML, NVIDIA's management library, that is used: functions by the
// addresses that were found at run time, structures as NVML has had them since
// driver 510.
#include <stddef.h>

typedef struct {
	unsigned version;
	unsigned long long total, reserved, free, used; // used is without what the driver reserves
} nvml_memory;

typedef struct {
	unsigned pid;
	unsigned long long memory;
	unsigned gpu_instance, compute_instance;
} nvml_process;

typedef struct {
	int (*init)(void);
	int (*by_pci)(const char *bus, void **device);
	int (*memory)(void *device, nvml_memory *memory);
	int (*processes)(void *device, unsigned *count, nvml_process *list);
	int (*shutdown)(void);
} nvml_functions;

// nvml_usage reads a card's memory and up to *count processes on it.
int nvml_usage(const nvml_functions *f, const char *bus, nvml_memory *memory, unsigned *count, nvml_process *list);
