//go:build cuda

package device

import (
	"longship/gpu"
	"longship/gpu/cuda"
)

// openCUDA opens a card.
func openCUDA(index int) (gpu.Device, error) { return cuda.Open(index) }
