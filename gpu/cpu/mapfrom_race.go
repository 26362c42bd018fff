//go:build race

package cpu

// mapFrom is the size from which buffers are mappings of their own. The race
// detector sees Go's heap alone, so with it nearly all are on the heap.
const mapFrom = 1 << 32
