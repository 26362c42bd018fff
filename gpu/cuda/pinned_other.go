//go:build cuda && !linux

package cuda

// preferHugePages does nothing: the system has no such advice.
func preferHugePages([]byte) {}
