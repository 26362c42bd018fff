// Package lorafile writes adapters in the layouts that other programs load, and
// says what is in an adapter file of any layout.
//
// In every layout the factor alpha/rank is folded into B in float32 before the
// cast, so that the file's own alpha is its rank: ComfyUI reads alpha from a
// tensor that diffusers refuses, diffusers reads it from metadata that ComfyUI
// ignores, and ai-toolkit takes it to be the rank. Folded, all of them compute
// what was trained. What alpha was is kept in the metadata for the reader.
//
// A file depends on the adapter alone: no clock time, host, path or number of
// cores is in it. Functions may be called from any goroutine.
package lorafile
