package texttower

import (
	"longship/gpu"
	"longship/gpu/tensor"
)

// Tap shows a tower's activations to see, which must read them in stream order.
func Tap(t *Tower, see func(stream gpu.Stream, name string, x tensor.Tensor)) {
	t.tap = func(name string, x tensor.Tensor) { see(t.stream, name, x) }
}
