//go:build cuda

package cublaslt

/*
#include <stdlib.h>
#include "blas.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"longship/gpu/cuda/shim"
)

// Library is cublasLt, loaded.
type Library struct {
	f    *C.blas_functions // in C memory, for the life of the process
	path string
}

func bind(lib *shim.Library) (*Library, error) {
	l := &Library{f: (*C.blas_functions)(C.calloc(1, C.sizeof_blas_functions)), path: lib.Path()}
	for name, field := range map[string]unsafe.Pointer{
		"GetVersion":                   unsafe.Pointer(&l.f.version),
		"Create":                       unsafe.Pointer(&l.f.create),
		"Destroy":                      unsafe.Pointer(&l.f.destroy),
		"Matmul":                       unsafe.Pointer(&l.f.matmul),
		"MatmulAlgoGetHeuristic":       unsafe.Pointer(&l.f.heuristic),
		"MatmulDescCreate":             unsafe.Pointer(&l.f.desc_create),
		"MatmulDescSetAttribute":       unsafe.Pointer(&l.f.desc_set),
		"MatmulDescDestroy":            unsafe.Pointer(&l.f.desc_destroy),
		"MatrixLayoutCreate":           unsafe.Pointer(&l.f.layout_create),
		"MatrixLayoutDestroy":          unsafe.Pointer(&l.f.layout_destroy),
		"MatmulPreferenceCreate":       unsafe.Pointer(&l.f.preference_create),
		"MatmulPreferenceSetAttribute": unsafe.Pointer(&l.f.preference_set),
		"MatmulPreferenceDestroy":      unsafe.Pointer(&l.f.preference_destroy),
	} {
		at, err := lib.Symbol("cublasLt" + name)
		if err != nil {
			return nil, err
		}
		*(*unsafe.Pointer)(field) = at
	}
	return l, nil
}

// Version returns the library's version, "12.4.5".
func (l *Library) Version() string {
	v := int(C.blas_version(l.f)) // 120405; cublasLt 11 to 13 all have two digits each
	return fmt.Sprintf("%d.%d.%d", v/10_000, v/100%100, v%100)
}

// Path returns the file it was loaded from.
func (l *Library) Path() string { return l.path }

// Handle is the library in one context.
type Handle struct {
	lib *Library
	h   unsafe.Pointer
}

// Create makes a handle in the current context.
func (l *Library) Create() (*Handle, error) {
	h := &Handle{lib: l}
	if s := Status(C.blas_create(l.f, &h.h)); s != 0 {
		return nil, fmt.Errorf("cublasLt %s (%s) does not start: %w", l.Version(), l.path, s)
	}
	return h, nil
}

// Destroy frees the handle.
func (h *Handle) Destroy() error {
	if s := Status(C.blas_destroy(h.lib.f, h.h)); s != 0 {
		return s
	}
	return nil
}

// Type is an element type; the values are cudaDataType's.
type Type int

// The types of operands.
const (
	F32  Type = 0
	BF16 Type = 14
)

// Matrix describes an operand, columns first: Stride elements from column to
// column, its first element aligned to Align bytes.
type Matrix struct {
	Type   Type
	Trans  bool
	Stride int
	Align  int
}

// Shape is a product C = op(A)·op(B), all columns first: C [M,N], op(A) [M,K],
// op(B) [K,N].
type Shape struct {
	M, N, K        int
	A, B, C        Matrix
	WorkspaceBytes int
}

// Plan is a shape with its algorithm.
type Plan struct {
	h *Handle
	p *C.blas_plan // in C memory
}

// Plan asks the heuristic for the algorithm of a shape.
func (h *Handle) Plan(s Shape) (*Plan, error) {
	p := &Plan{h: h, p: (*C.blas_plan)(C.calloc(1, C.sizeof_blas_plan))}
	var found C.int
	status := Status(C.blas_plan_make(h.lib.f, h.h, C.int64_t(s.M), C.int64_t(s.N), C.int64_t(s.K), s.A.c(), s.B.c(), s.C.c(),
		C.uint64_t(s.WorkspaceBytes), p.p, &found))
	if status == 0 && found == 0 {
		status = notSupported
	}
	if status != 0 {
		p.Destroy()
		return nil, fmt.Errorf("cublasLt %s has no algorithm: %w", h.lib.Version(), status)
	}
	return p, nil
}

func (m Matrix) c() C.blas_matrix {
	c := C.blas_matrix{_type: C.int(m.Type), stride: C.int64_t(m.Stride), align: C.uint32_t(m.Align)}
	if m.Trans {
		c.transposed = 1
	}
	return c
}

// Run queues C = alpha·op(A)·op(B) + beta·C on a stream. Workspace is
// the shape's WorkspaceBytes of device memory.
func (p *Plan) Run(alpha float32, a, b uintptr, beta float32, c, workspace uintptr, stream unsafe.Pointer) error {
	s := Status(C.blas_plan_run(p.h.lib.f, p.h.h, p.p, C.float(alpha), C.uintptr_t(a), C.uintptr_t(b), C.float(beta), C.uintptr_t(c),
		C.uintptr_t(workspace), stream))
	if s != 0 {
		return s
	}
	return nil
}

// Destroy frees the plan.
func (p *Plan) Destroy() {
	C.blas_plan_free(p.h.lib.f, p.p)
	C.free(unsafe.Pointer(p.p))
}

// Status is a cublasStatus_t.
type Status int

const notSupported Status = 15

var statusNames = map[Status]string{
	1: "CUBLAS_STATUS_NOT_INITIALIZED", 3: "CUBLAS_STATUS_ALLOC_FAILED", 7: "CUBLAS_STATUS_INVALID_VALUE", 8: "CUBLAS_STATUS_ARCH_MISMATCH",
	11: "CUBLAS_STATUS_MAPPING_ERROR", 13: "CUBLAS_STATUS_EXECUTION_FAILED", 14: "CUBLAS_STATUS_INTERNAL_ERROR", notSupported: "CUBLAS_STATUS_NOT_SUPPORTED",
}

// Error returns the status's name.
func (s Status) Error() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return fmt.Sprintf("cublasLt status %d", int(s))
}
