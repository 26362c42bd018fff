//go:build cuda

package shim

/*
#include <stddef.h>

// Declared here, as the driver has had them since CUDA 4, so that this package
// needs no header of NVIDIA's.
extern int cuInit(unsigned flags);
extern int cuMemHostAlloc(void **p, size_t bytes, unsigned flags);
extern int cuMemFreeHost(void *p);
extern int cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags);
extern int cuMemHostUnregister(void *p);
extern int cuFuncSetAttribute(void *function, int attribute, int value);
extern int cuGetErrorName(int code, const char **name);
extern int cuGetErrorString(int code, const char **text);
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// portable makes page-locked memory so for every context of the process
// (CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE).
const portable = 1

// maxDynamicShared is CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
const maxDynamicShared = 8

// Error is a CUresult that is not success.
type Error int

// The results that callers tell apart.
const (
	ErrInvalidValue Error = 1
	ErrOutOfMemory  Error = 2
	ErrNotReady     Error = 600
)

// Error returns the driver's text and name, "out of memory (CUDA_ERROR_OUT_OF_MEMORY)".
func (e Error) Error() string {
	var text *C.char
	if C.cuGetErrorString(C.int(e), &text) != 0 || text == nil {
		return ErrorName(int(e))
	}
	return fmt.Sprintf("%s (%s)", C.GoString(text), ErrorName(int(e)))
}

// ErrorName returns the driver's name of a result, "CUDA_ERROR_OUT_OF_MEMORY".
func ErrorName(code int) string {
	var name *C.char
	if C.cuGetErrorName(C.int(code), &name) != 0 || name == nil {
		return fmt.Sprintf("CUDA error %d", code)
	}
	return C.GoString(name)
}

func result(code C.int) error {
	if code == 0 {
		return nil
	}
	return Error(code)
}

func initialise() int { return int(C.cuInit(0)) }

// HostAlloc returns page-locked memory.
func HostAlloc(bytes int64) (unsafe.Pointer, error) {
	var p unsafe.Pointer
	err := result(C.cuMemHostAlloc(&p, C.size_t(bytes), portable))
	return p, err
}

// HostFree frees what HostAlloc returned.
func HostFree(p unsafe.Pointer) error { return result(C.cuMemFreeHost(p)) }

// HostRegister page-locks memory that the caller owns.
func HostRegister(mem []byte) error {
	return result(C.cuMemHostRegister_v2(unsafe.Pointer(&mem[0]), C.size_t(len(mem)), portable))
}

// HostUnregister undoes HostRegister.
func HostUnregister(mem []byte) error {
	return result(C.cuMemHostUnregister(unsafe.Pointer(&mem[0])))
}

// AllowShared lets launches of a function (a CUfunction) ask for that many
// bytes of dynamic shared memory; without it the driver allows 48 KB.
func AllowShared(function unsafe.Pointer, bytes int) error {
	return result(C.cuFuncSetAttribute(function, maxDynamicShared, C.int(bytes)))
}
