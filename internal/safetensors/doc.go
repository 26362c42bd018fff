// Package safetensors reads and writes the safetensors format
// (https://github.com/huggingface/safetensors): an 8-byte length, a JSON header,
// and the tensors' bytes without a gap.
//
// Open reads one file's header and checks all of it; Load does so for a model
// in a folder, sharded or not. Tensors are handles that read their bytes when
// asked. Everything may be used from any goroutine after Open; Close ends it.
//
// Bytes are read with pread and not through a memory map: a file that is cut
// while a run reads it (a download started again, a full network disk) then
// gives an error that names the file and the tensor, where a map gives a bus
// error that ends the process. It also costs no page faults, works alike on
// every system, and leaves the address space alone; Tensor.Drop keeps the page
// cache from filling with what is read once.
//
// Write streams: header first, then each tensor from its callback.
package safetensors

import "errors"

// ErrFormat is wrapped by every error that says a file is not valid safetensors.
// The file must be made or downloaded again.
var ErrFormat = errors.New("not a valid safetensors file")

// MaxHeader is the longest header that is accepted, as in the reference implementation.
const MaxHeader = 100_000_000
