//go:build !cuda

package device

import (
	"errors"

	"longship/gpu"
)

// openCUDA opens a card. This build has no CUDA, and says so.
func openCUDA(int) (gpu.Device, error) {
	return nil, errors.New("this program was built without CUDA (build tag cuda)")
}
