//go:build !race

package cpu

// mapFrom is the size from which buffers are mappings of their own.
const mapFrom = 1 << 20
