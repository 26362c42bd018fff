//go:build cuda

package cuda

import "longship/gpu"

// launcher queues one op on a stream: s.kernel for functions of the PTX, s.gemm
// for matrix products. It runs on the goroutine that queues the op, with
// arguments that the op's Check has passed, and must not wait for the card. Its
// error names the argument that this device has no code for.
type launcher func(s *stream, k gpu.Kernel) error

// launchers are the ops of this device by name.
var launchers = map[string]launcher{
	"gemm": launchGemm,
}
