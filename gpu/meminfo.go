package gpu

// MemInfo is the memory of a card as its driver reports it, in bytes.
type MemInfo struct {
	Free, Total int64
	// Own is what this process has of it: the context, libraries and kernels
	// beside the buffers.
	Own int64
}

// MemReporter is a Device with memory of its own that other processes share.
type MemReporter interface {
	MemInfo() (MemInfo, error)
}
