//go:build cuda

#include <stddef.h>

#include "functions.h"
#include "table.h"

#if defined(_WIN32)
#define HIDDEN
#else
#define HIDDEN __attribute__((visibility("hidden")))
#endif

// cu calls cuInit before main and ends the process where it fails, so before
// the driver is bound cuInit succeeds and everything else says that it was not.
static int missing(void) { return 3; /* CUDA_ERROR_NOT_INITIALIZED */ }
static int succeeds(void) { return 0; }

#define POINTER(name) HIDDEN void *longship_##name = (void *)missing;
LONGSHIP_DRIVER_FUNCTIONS(POINTER)

__attribute__((constructor)) static void before_main(void) { longship_cuInit = (void *)succeeds; }

static const struct {
	const char *name;
	void **pointer;
} table[] = {
#define ROW(name) {#name, &longship_##name},
	LONGSHIP_DRIVER_FUNCTIONS(ROW)
};

int longship_function_count(void) { return sizeof table / sizeof *table; }
const char *longship_function_name(int i) { return table[i].name; }
void longship_bind(int i, void *address) { *table[i].pointer = address; }
