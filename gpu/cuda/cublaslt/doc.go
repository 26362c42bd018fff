// Package cublaslt multiplies matrices with NVIDIA's cublasLt (build tag
// `cuda`), found at run time: no header and no library of NVIDIA's is needed to
// build.
//
// A Plan is one shape of product with the algorithm that cublasLt's heuristic
// named first; the heuristic is asked once, so that every call of the shape
// gives the same bits. All calls belong to the thread that holds the context.
package cublaslt
