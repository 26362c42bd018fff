//go:build cuda

// Each function of the driver as one jump through a pointer that table.c holds.
// The arguments stay where the caller put them, so no signature is needed.

#include "functions.h"

#if defined(__x86_64__) && defined(_WIN32)
#define JUMP(name) .globl name; name: jmp *longship_##name(%rip);
#elif defined(__x86_64__)
#define JUMP(name) .globl name; .hidden name; .type name, @function; name: jmp *longship_##name(%rip);
#elif defined(__aarch64__)
#define JUMP(name) .globl name; .hidden name; .type name, %function; name: adrp x16, longship_##name; ldr x16, [x16, :lo12:longship_##name]; br x16;
#else
#error "CUDA runs on amd64 and arm64"
#endif

	.text
	LONGSHIP_DRIVER_FUNCTIONS(JUMP)

#if defined(__ELF__)
	.section .note.GNU-stack,"",%progbits
#endif
